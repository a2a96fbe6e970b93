"""Task infer in a request: what it plans, what it refuses before anything is queued, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from rendering import planned
from test_planning import CPU

import hpc_llm
from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks import required_packages
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.tasks.prepare import request_of


def plan_of(*settings: str, method: str = "ddp", model: str = "tiny", **asked: Any) -> Plan:
    return planned("local", method, hardware=CPU, task="infer", model=model, set=settings, **asked).plan


@pytest.mark.parametrize(
    ("asked", "figures"),
    [
        ({}, (25, 27, 2, 256)),
        ({"micro_batch_size": 4}, (100, 27, 2, 256)),
        ({"settings": ("queries=10",), "micro_batch_size": 4}, (10, 5, 2, 256)),
        ({"steps": 12, "warmup_steps": 3, "micro_batch_size": 2}, (18, 12, 3, 256)),
        ({"settings": ("prompt_tokens=10", "new_tokens=30", "tasks_per_node=2", "queries=7")}, (7, 6, 2, 40)),
    ],
)
def test_queries_steps_and_lengths_follow_from_each_other(asked: dict[str, Any], figures: tuple[int, ...]) -> None:
    plan = plan_of(*asked.pop("settings", ()), **asked)
    work = plan.inference
    assert (work.queries, work.steps, work.warmup_steps, plan.batch.sequence_length) == figures
    assert plan.batch.global_batch_size == plan.batch.micro_batch_size * plan.parallel.data
    assert (plan.engine.name, plan.engine.deepspeed, plan.batch.gradient_accumulation_steps) == ("plain", {}, 1)
    assert work.stop_at_end is False  # random weights
    assert Plan.from_dict(plan.to_dict()) == Plan.from_dict(plan.flat()) == plan


@pytest.mark.parametrize(
    ("method", "packages"),
    [("ddp", ()), ("bf16", ()), ("q", ("bitsandbytes",)), ("int8", ("bitsandbytes",))],
)
def test_the_job_needs_no_engine(method: str, packages: tuple[str, ...]) -> None:
    model = "llama3.2-3b"
    plan = planned("delta", method, task="infer", model=model, gpus_per_node=1).plan
    assert required_packages([plan]) == ("torch", "transformers", *packages)
    assert plan.engine.cuda_graph is (method != "int8")
    loaded = plan.changed(weights="checkpoint", model="/m")
    assert ("accelerate" in required_packages([loaded])) is bool(packages)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "z3"}, r"method z3 splits .* task infer trains nothing: use ddp .* q .* int8"),
        ({"method": "z2+o"}, "splits what is trained"),
        ({"method": "qlora"}, "adds adapters that have to be trained first"),
        ({"method": "ddp+r"}, "recomputes what a backward pass needs"),
        ({"settings": ("attention=flash_attention_2",), "cluster": "delta"}, "FlashAttention-2 reads no mask"),
        ({"model": "flan-t5-base"}, "flan-t5-base has an encoder and a decoder"),
        ({"settings": ("new_tokens=2000",)}, r"up to 128 tokens and new_tokens 2000 need 2128 positions: model tiny has 2048"),
        ({"settings": ("new_tokens=0",)}, "new_tokens is 0, it must be at least 1"),
        ({"settings": ("new_tokens=1.5",)}, "new_tokens=1.5: a whole number"),
        ({"settings": ("prompt_tokens=true",)}, "prompt_tokens: True is not a whole number"),
        ({"settings": ("temperature=-1",)}, "temperature=-1.0: a number from 0"),
        ({"settings": ("temperature=101",)}, "temperature=101.0: a number from 0"),
        ({"settings": ("top_p=0.9",)}, "which takes the likeliest token: add --set temperature=0.7, or leave top_p out"),
        ({"settings": ("top_p=0.9", "temperature=0")}, "likeliest token: set temperature to more, or leave top_p out"),
        ({"settings": ("temperature=1", "top_p=0")}, "top_p=0.0: a number above 0"),
        ({"settings": ("stop_at_end=1",)}, "stop_at_end=1: true or false"),
        ({"settings": ("keep_outputs=7",)}, "keep_outputs=7: write true or false"),
        ({"settings": ("queries=2",)}, r"2 queries in batches of 1 make 2 measured steps: at least 3 .* Ask for at least --set queries=3, or"),
        ({"steps": 2}, r"0 queries .* 0 measured steps.* Ask for at least --steps 5, or"),
        ({"steps": 30, "settings": ("queries=9",)}, "both steps and queries"),
        ({"warmup_steps": -1}, "warmup_steps is -1"),
        ({"settings": ("split=train",)}, "synthetic tokens have no splits"),
        ({"settings": ("validation_fraction=0.1",)}, "synthetic tokens do not heed it"),
        ({"settings": ("optimizer.lr=1",)}, "--set optimizer.lr: task infer does not heed optimizer, --task pretrain or finetune or tune does"),
        ({"settings": ("deepspeed.gradient_clipping=1",)}, "task infer does not heed deepspeed"),
        ({"settings": ("engine=fsdp2",)}, "there is no engine of task infer .fsdp2.."),
        ({"epochs": 2.0}, "each query is answered once"),
        ({"save_every": 5}, "nothing is trained that could be kept"),
        ({"resume": "r"}, "nothing is trained that could go on"),
        ({"gradient_accumulation_steps": 2}, "nothing is accumulated"),
        ({"sequence_length": 512}, "as long as its prompt and new_tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(asked: dict[str, Any], said: str) -> None:
    settings, cluster, method = asked.pop("settings", ()), asked.pop("cluster", None), asked.pop("method", "ddp")
    with pytest.raises(HpcLlmError, match=said):
        if cluster:
            planned(cluster, method, task="infer", model="llama3.2-1b", set=settings)
        else:
            plan_of(*settings, method=method, **asked)


ROWS = [{"prompt": "Q" * (10 + i), "completion": " A"} for i in range(8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with prepared rows, a text, and both kinds of splits."""
    place = tmp_path_factory.mktemp("infer")
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (place / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:4]))
    (place / "text.txt").write_text("words and words\n" * 40)
    return place


def planned_of(folder: Path, *sources: str, **asked: Any) -> Plan:
    data = [source.replace("./", f"{folder}/") for source in sources]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPC_LLM_CACHE", str(folder / "caches"))
        [one] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=data)
        prepare(request_of(one.plan), folder / "caches", lambda text: None)
        [found] = hpc_llm.plan(cluster="local", method="ddp", task="infer", model="tiny", data=data, **asked)
    return found.plan


def test_queries_are_the_prompts_of_what_is_held_out_or_of_all_there_is(folder: Path) -> None:
    plan = planned_of(folder, "./rows.jsonl")
    assert (plan.inference.queries, plan.inference.split, plan.inference.prompt_tokens) == (8, "train", None)
    assert plan.batch.sequence_length == 17 + 1 + 128  # a line break stands behind a prompt
    both = ("./rows.jsonl", f"validation={folder}/dev.jsonl")
    assert planned_of(folder, *both).inference.queries == 4
    assert planned_of(folder, *both, set={"split": "train", "queries": 5}).inference.queries == 5
    text = planned_of(folder, "./text.txt", set={"prompt_tokens": 100})
    assert (text.inference.queries, text.inference.prompt_tokens) == (6, 100)
    for setting, said in (
        ({"queries": 9}, "9 queries are asked for, and the data have 8"),
        ({"prompt_tokens": 5}, "the samples have prompts of their own"),
        ({"split": "validation"}, "no validation split"),
        ({"split": "test"}, "split 'test'"),
    ):
        with pytest.raises(HpcLlmError, match=said):
            planned_of(folder, "./rows.jsonl", set=setting)
    with pytest.raises(HpcLlmError, match="too few for a prompt of 1000"):
        planned_of(folder, "./text.txt", set={"prompt_tokens": 1000})


def test_prompts_for_validation_alone_are_answered_and_not_trained_on(folder: Path) -> None:
    """What is held out from a training that was somewhere else."""
    alone = f"validation={folder}/dev.jsonl"
    plan = planned_of(folder, alone)
    assert (plan.inference.queries, plan.inference.split) == (4, "validation")
    for data in ([alone], [str(plan.inference.corpus)]):
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(HpcLlmError, match="Add --data FILE with what is to be"),
        ):
            patch.setenv("HPC_LLM_CACHE", str(folder / "caches"))
            hpc_llm.plan(cluster="local", method="ddp", model="tiny", sequence_length=64, data=data)
    with pytest.raises(HpcLlmError, match="no train split"):
        planned_of(folder, alone, set={"split": "train"})


@pytest.mark.parametrize(
    ("asked", "said", "instead"),
    [
        ({"steps": 10}, "at most --steps 6", {"steps": 6}),
        ({"set": {"queries": 9}}, "at most --set queries=8", {"set": {"queries": 8}}),
        ({"steps": 4}, "Ask for at least --steps 5", {"steps": 5}),
        ({"set": {"queries": 2}}, "Ask for at least --set queries=5", {"set": {"queries": 5}}),
        ({"micro_batch_size": 8}, "The data have 8: ask for smaller batches", {"micro_batch_size": 2}),
    ],
)
def test_what_is_advised_of_queries_is_said_as_it_was_asked_and_can_be_planned(
    folder: Path, asked: dict[str, Any], said: str, instead: dict[str, Any]
) -> None:
    base = {"micro_batch_size": 2}
    with pytest.raises(HpcLlmError, match=said):
        planned_of(folder, "./rows.jsonl", **base | asked)
    assert planned_of(folder, "./rows.jsonl", **base | instead)


def test_the_example_asks_for_three_kinds_of_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_LLM_CACHE", str(folder / "caches"))
    monkeypatch.chdir(ROOT)
    [one] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=["examples/questions.jsonl"])
    prepare(request_of(one.plan), folder / "caches", lambda text: None)
    plans = [found.plan for found in hpc_llm.plan("examples/infer.yaml", cluster="local")]
    kinds = [plan.model.quantization and plan.model.quantization.kind for plan in plans]
    assert kinds == [None, "nf4", "int8"] and {plan.inference.queries for plan in plans} == {12}
