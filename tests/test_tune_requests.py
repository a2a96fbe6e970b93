"""Task tune in a request: where a search begins, what it keeps and is repeated over, and what is refused before anything is queued."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rendering import H100, planned
from test_planning import CPU

import hpc_llm
from hpc_llm.api.searching import bounds, least_of, with_first_size
from hpc_llm.errors import HpcLlmError, PlanError
from hpc_llm.planning.micro_batches import plan_of_try, starting_at
from hpc_llm.planning.parts import Training, Tuning
from hpc_llm.site.cluster import load_cluster

HERE = load_cluster("local")


def plan_of(*settings: str, cluster: str = "local", method: str = "ddp", model: str = "tiny", **asked: Any) -> Any:
    hardware = CPU if cluster == "local" else H100
    return planned(cluster, method, hardware=hardware, task="tune", model=model, set=settings, **asked).plan


def test_a_try_is_a_short_training_with_the_batch_of_the_try() -> None:
    plan = plan_of("kept_global_batch=24", "confirm_steps=40", micro_batch_size=5, method="z3")
    assert (plan.batch.micro_batch_size, plan.batch.gradient_accumulation_steps) == (4, 6)
    one = plan_of_try(plan, 8, 128, confirms=False)
    assert (one.task, type(one.workload), one.workload.steps, one.batch.sequence_length) == (
        "pretrain",
        Training,
        10,
        128,
    )
    config = one.engine.deepspeed
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    assert [config[name] for name in names] == [8, 3, 24]
    assert plan_of_try(plan, 8, 128, confirms=True).workload.steps == 40
    assert isinstance(plan.workload, Tuning) and type(plan).from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize("cluster", ["delta", "taiwania2"])
def test_a_search_begins_where_the_estimate_says_unless_it_is_told(cluster: str) -> None:
    from hpc_llm.estimating.largest import largest_micro_batch
    from hpc_llm.estimating.memory import at_partition
    from hpc_llm.estimating.shapes import sizes_in

    site = load_cluster(cluster)
    asked = planned(cluster, "z3", task="tune", model="llama3.2-1b", sequence_length=512)
    begun = with_first_size(asked, site)
    expected = largest_micro_batch(asked.plan, at_partition(site, asked.plan), sizes_in(asked.plan))
    assert begun.plan.batch.micro_batch_size == expected and (expected or 0) > 1
    assert begun.origins["micro_batch_size"].startswith("estimated")
    told = planned(cluster, "z3", task="tune", model="llama3.2-1b", micro_batch_size=3)
    assert with_first_size(told, site).plan.batch.micro_batch_size == 3
    assert least_of(starting_at(begun.plan, 4096)).batch.micro_batch_size == 1


@pytest.mark.parametrize(
    ("over", "lengths"),
    [
        ("sequence-length", [256, 512, 1024, 2048]),
        ("sequence_length=64,32,64", [32, 64]),
        (None, []),
    ],
)
def test_the_lengths_of_a_search(over: str | None, lengths: list[int]) -> None:
    plan = plan_of(over=over, sequence_length=256)
    assert plan.workload.lengths == lengths and plan.batch.sequence_length == (lengths or [256])[0]


def test_lengths_end_where_the_model_does() -> None:
    assert plan_of(over="sequence-length", sequence_length=1500).workload.lengths == [1500]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"over": "steps"}, "no axis 'steps'.*sequence-length"),
        ({"over": "sequence-length=a"}, "write the lengths in tokens"),
        ({"over": "sequence-length="}, "nothing stands behind the =. Write the lengths in tokens"),
        ({"over": "64,128"}, "as in --over sequence-length=64,128."),
        ({"over": "64, 128"}, "as in --over sequence-length=64,128."),
        ({"over": "sequence-length=64,99999"}, "takes 2048 tokens at most"),
        ({"task": "pretrain", "over": "sequence-length"}, "searches for nothing"),
        ({"set": ["margin=1"]}, "part of the memory"),
        ({"set": ["most_tries=0"]}, "at least 1"),
        ({"set": ["confirm_steps=5"]}, "at least 8 are needed"),
        ({"set": ["kept_global_batch=yes"]}, "whole number"),
        ({"set": ["kept_global_batch=8"], "gradient_accumulation_steps": 2}, "keep one of them"),
        ({"set": ["kept_global_batch=9", "tasks_per_node=2"]}, "8 or 10 can be"),
        ({"set": ["lengths=[1]"]}, "use --over"),
        ({"set": ["packing=none"]}, "task tune does not heed packing, --task pretrain or finetune does. Leave it out."),
        ({"save_every": 5}, "does not heed it"),
        ({"epochs": 1.0}, "does not heed it"),
        ({"resume": "nothing-of-that-name"}, "nothing-of-that-name"),
    ],
)
def test_what_a_search_cannot_do_is_refused_in_one_sentence(asked: dict[str, Any], said: str, own_folder: Any) -> None:
    small: dict[str, Any] = {"cluster": "local", "task": "tune", "method": "ddp", "model": "tiny", "gpus_per_node": 0}
    with pytest.raises(HpcLlmError, match=said) as caught:
        hpc_llm.plan(**small | asked)
    assert "\n" not in str(caught.value)


def test_the_example_is_planned() -> None:
    plans = [one.plan for one in hpc_llm.plan("examples/tune.yaml", cluster="local")]
    assert [(plan.task, plan.tuning.kept_global_batch) for plan in plans] == [("tune", 8)] * 3


def test_what_a_search_may_cost_is_a_line() -> None:
    plan = planned("local", "ddp", task="tune", model="tiny", gpus_per_node=0, set=["most_tries=7"]).plan
    assert (
        "at most 7 short trainings" in bounds(plan, HERE)
        and "05:50:00" in bounds(plan, HERE)
        and "\n" not in bounds(plan, HERE)
    )
    kept = planned("local", "ddp", task="tune", model="tiny", gpus_per_node=0, set=["kept_global_batch=8"]).plan
    assert "at most 16 short trainings, of the 4 sizes up to 8 that keep the global batch" in bounds(kept, HERE)
    limited = planned("local", "ddp", task="tune", model="tiny", gpus_per_node=0, time="01:00:00").plan
    assert "the job's time of 01:00:00 ends it" in bounds(limited, HERE) and "00:10:00" in bounds(limited, HERE)


@pytest.mark.parametrize(
    ("partition", "time_s", "said"),
    [
        (
            "gtest",
            None,
            "at most 00:30:00, and no longer than the scheduler gives a job of gtest that asks for no --time",
        ),
        (
            "gp4d",
            None,
            "at most 1-09:20:00, and no longer than the scheduler gives a job of gp4d that asks for no --time",
        ),
        ("gp4d", 3600, "the job's time of 01:00:00 ends it"),
    ],
)
def test_a_search_is_said_to_take_no_longer_than_its_partition_allows(
    partition: str, time_s: int | None, said: str
) -> None:
    made = planned("taiwania2", "z3", task="tune", model="tiny", partition=partition).plan
    plan = replace(made, job=replace(made.job, time_s=time_s))
    assert f": {said}; one that hangs" in bounds(plan, load_cluster("taiwania2"))


@pytest.mark.parametrize("over", ["sequence-length=1", "sequence-length=1,2", "sequence-length=8,1"])
def test_a_length_at_which_nothing_is_learned_is_refused(over: str) -> None:
    with pytest.raises(
        PlanError, match=r"over, sequence_length 1: .* Ask for 2 at least with --over sequence-length=2,…"
    ):
        hpc_llm.plan(cluster="local", method="ddp", model="tiny", task="tune", over=over)
