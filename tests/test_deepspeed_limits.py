"""DeepSpeed settings under which our numbers would be wrong are refused, wherever they are said; others pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.errors import RequestError
from hpc_llm.planning.deepspeed_config import check_keys
from hpc_llm.worker.homework import homework_plan, parse_arguments
from hpc_llm.worker.ranks import Ranks


def refused(config: dict[str, Any]) -> str:
    with pytest.raises(RequestError) as caught:
        check_keys(config, "here")
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size is 2"),
        ({"tensor_parallel": {"autotp_size": "2"}}, "tensor_parallel.autotp_size is '2'"),
        ({"tensor_parallel": {"tp_size": 4}}, "tensor_parallel.tp_size is 4"),
        ({"tensor_parallel": {"tp": {"tp_size": 8}}}, "tensor_parallel.tp.tp_size is 8"),
        ({"tensor_parallel": {"tensor_parallel": {"tp_size": 8}}}, "tensor_parallel.tensor_parallel.tp_size is 8"),
        ({"sequence_parallel_size": 2}, "sequence_parallel_size is 2"),
        ({"sequence_parallel_size": 2, "data_parallel_size": 4}, "sequence_parallel_size is 2"),
        ({"expert_parallel": {"autoep_size": 2}}, "expert_parallel.autoep_size is 2"),
        ({"expert_parallel": {"expert_tensor_parallel_size": 2}}, "expert_parallel.expert_tensor_parallel_size is 2"),
        ({"pipeline": {"stages": 4}}, "pipeline.stages is 4"),
        ({"pipeline": {"stages": "4"}}, "pipeline.stages is '4'"),
    ],
)
def test_what_would_share_a_batch_among_ranks_is_refused(config: dict[str, Any], place: str) -> None:
    said = refused(config)
    assert said.startswith(f"here: {place}: ") and "z3 splits a model that is too large" in said


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"compile": {"deepcompile": True, "passes": ["z3", "autosp"]}},
            "compile has no effect: DeepSpeed compiles by a call",
        ),
        ({"compile": {"enabled": True}}, "compile has no effect"),
        ({"checkpoint": {"writer": {"type": "FAST"}}}, "checkpoint has no effect: what is trained is kept by hpc-llm"),
        (
            {"gradient_allreduce_op": "avg"},
            "gradient_allreduce_op is 'avg': DeepSpeed knows mean, which it does anyway, and sum. Leave it out.",
        ),
        (
            {"elasticity": {"enabled": True, "max_train_batch_size": 64}},
            "elasticity is enabled: it computes batch sizes",
        ),
        ({"autotuning": {"enabled": True}}, "autotuning is enabled"),
        ({"curriculum_learning": {"enabled": True}}, "it shortens the sequences"),
        ({"data_efficiency": {"enabled": True}}, "it drops tokens"),
        ({"progressive_layer_drop": {"enabled": True}}, "it leaves layers out"),
        ({"hybrid_engine": {"enabled": True}}, "hybrid_engine is enabled"),
        ({"expert_parallel": {"enabled": True}}, "expert_parallel is enabled"),
        (
            {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}},
            "contradicts the plan's precision. Set precision.",
        ),
        ({"amp": {"enabled": True}}, "contradicts the plan's precision"),
        ({"gradient_allreduce_op": "sum"}, "the step would grow with the number of ranks"),
        ({"managed_gradient_accumulation": False}, "managed_gradient_accumulation is off"),
    ],
)
def test_what_changes_the_batch_or_the_averaging_is_refused(config: dict[str, Any], said: str) -> None:
    assert said in refused(config)


@pytest.mark.parametrize(
    "config",
    [
        {"tensor_parallel": {"autotp_size": 1}},
        {"tensor_parallel": {"autotp_size": 0, "tp": {"tp_size": 1}}},
        {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True}},
        {"pipeline": {"stages": "auto"}},
        {"elasticity": {"enabled": False}, "data_efficiency": {}, "autotuning": {"fast": True}},
        {"gradient_allreduce_op": "mean", "prescale_gradients": True, "gradient_predivide_factor": 2.0},
        {"aio": {"block_size": 1048576}, "zero_optimization": {"sub_group_size": 1000000000.0}},
    ],
)
def test_what_changes_no_number_passes(config: dict[str, Any]) -> None:
    check_keys(config, "here")


@pytest.mark.parametrize("setting", ["tensor_parallel.autotp_size=2", "sequence_parallel_size=2", "pipeline.stages=2"])
def test_the_plan_refuses_them_too(setting: str) -> None:
    with pytest.raises(RequestError, match="hpc-llm feeds each rank a batch of its own"):
        planned("delta", "z3", set=(f"deepspeed.{setting}",))


def test_the_homeworks_configs_are_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tp.json"
    config = {"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}}
    path.write_text(json.dumps(config), encoding="utf-8")
    arguments = parse_arguments(["--deepspeed_config", str(path), "--model_name", "tiny"])
    with pytest.raises(RequestError, match=r"tp\.json: tensor_parallel\.autotp_size is 2"):
        homework_plan(arguments, config, Ranks(0, 8, 0, 8, "127.0.0.1", 29500, "mpirun"), 8)


def test_each_rank_is_a_data_parallel_group_of_its_own() -> None:
    plan = planned("delta", "z3", nodes=2, gpus_per_node=4, micro_batch_size=3, gradient_accumulation_steps=2).plan
    assert (plan.parallel.world_size, plan.parallel.data, plan.batch.global_batch_size) == (8, 8, 48)
    assert plan.engine.deepspeed["train_batch_size"] == 48


@pytest.mark.parametrize("key", ["quantize_training", "eigenvalue"])
def test_a_block_that_no_deepspeed_reads_is_refused_where_a_request_enables_it(key: str) -> None:
    with pytest.raises(RequestError, match=f"{key} has no effect: .*Leave it out"):
        planned("delta", "z2", set=(f"deepspeed.{key}.enabled=true",))
    planned("delta", "z2", set=(f"deepspeed.{key}.enabled=false",))
    assert "quantize_training" in planned("delta", "q-hpc2").plan.engine.deepspeed


@pytest.mark.parametrize("key", ["graph_harvesting", "sparse_gradients"])
def test_a_switch_that_newer_releases_lack_is_told_where_a_request_sets_it(key: str) -> None:
    said = f"have no deepspeed.{key} any more"
    assert any(said in one for one in planned("delta", "z2", set=(f"deepspeed.{key}=true",)).notices)
    assert not any(said in one for one in planned("delta", "z2", set=(f"deepspeed.{key}=false",)).notices)
