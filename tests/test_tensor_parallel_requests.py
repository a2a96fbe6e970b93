"""`--tensor-parallel`: what follows from it in a plan, and what is refused before anything is queued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.errors import HpcLlmError
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.parsing.formats.own_run import row_of
from hpc_llm.planning import engines
from hpc_llm.planning.engines import EngineFacts
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import MODEL_TYPES, PRESETS, num_parameters
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.looks import look


def plan_of(method: str = "z3", cluster: str = "delta", **asked: Any) -> Plan:
    return planned(cluster, method, **asked).plan


def refusal(**asked: Any) -> str:
    with pytest.raises(HpcLlmError) as caught:
        plan_of(**asked)
    assert caught.value.exit_code == 2
    return str(caught.value)


def ranks(count: int, *more: str) -> tuple[str, ...]:
    return (f"tasks_per_node={count}", *more)


@pytest.mark.parametrize("method", ["ddp", "bf16", "z1", "z2", "z2o", "z3", "z3o", "lora", "z3+lora", "z2+r"])
def test_ranks_that_share_layers_train_on_the_same_samples(method: str) -> None:
    found = planned("delta", method, tensor_parallel=2, nodes=2, micro_batch_size=3, gradient_accumulation_steps=5)
    plan = found.plan
    assert (plan.parallel.world_size, plan.parallel.tensor, plan.parallel.data) == (8, 2, 4)
    assert plan.batch.global_batch_size == plan.engine.deepspeed["train_batch_size"] == 4 * 3 * 5
    assert found.origins["data_parallel"] == "computed: each 2 ranks train on samples of their own"
    engine = plan.engine
    assert not (engine.cuda_graph or engine.fused_lora or engine.fused_layers or engine.compiled_layers)


def test_one_rank_a_layer_is_what_nobody_asks_for() -> None:
    assert plan_of(tensor_parallel=1) == plan_of()


@pytest.mark.parametrize("model", [name for name, shape in PRESETS.items() if shape.model_type in MODEL_TYPES])
def test_what_is_offered_in_place_of_what_does_not_divide_is_accepted(model: str) -> None:
    asked: dict[str, Any] = {"cluster": "local", "hardware": None, "model": model, "sequence_length": 64}
    for tensor in (2, 3, 5, 6, 8, 16):
        try:
            plan = plan_of(**asked, tensor_parallel=tensor, set=ranks(240))
        except HpcLlmError as error:
            said = str(error)
            assert said.startswith(f"--tensor-parallel {tensor}: it does not divide ") and model in said
            for offered in said.rpartition("one of ")[2].rstrip(".").split(", "):
                assert plan_of(**asked, tensor_parallel=int(offered), set=ranks(240)).parallel.tensor == int(offered)
        else:
            shape: Any = PRESETS[model]
            assert plan.parallel.data == 240 // tensor
            assert not any(
                n % tensor for n in (shape.num_attention_heads, shape.num_key_value_heads, shape.intermediate_size)
            )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tensor_parallel": 3}, "of 4 GPUs per node 3 cannot be taken evenly. Choose one of 1, 2, 4."),
        ({"tensor_parallel": 8, "nodes": 2}, "share layers are on one node, and of 4 GPUs per node 8 cannot be taken evenly. Choose one of 1, 2, 4."),
        ({"tensor_parallel": 4, "gpus_per_node": 2}, "of 2 GPUs per node 4 cannot be taken evenly. Choose one of 1, 2, or --gpus-per-node 4."),
        ({"tensor_parallel": 2, "cluster": "local", "hardware": None}, "of 1 rank per node 2 cannot be taken evenly. Choose 1, or --set tasks_per_node=2."),
        ({"tensor_parallel": 0}, "--tensor-parallel 0"),
        ({"tensor_parallel": -2}, "--tensor-parallel -2"),
        ({"tensor_parallel": 4, "model": "tiny"}, "it does not divide key-value heads of tiny (attention heads 4, key-value heads 2, MLP width 384). Choose one of 1, 2."),
        ({"tensor_parallel": 4, "model": "qwen2-0.5b"}, "does not divide attention heads and key-value heads of qwen2-0.5b"),
        ({"tensor_parallel": 2, "method": "qlora"}, "weights in nf4 are packed whole"),
        ({"tensor_parallel": 2, "method": "int8"}, "weights in int8 are packed whole"),
        ({"tensor_parallel": 2, "model": "flan-t5-small"}, "the layers of t5 is not known, only of llama, mistral, qwen2."),
        ({"tensor_parallel": 2, "task": "infer", "method": "ddp"}, "task infer has the whole model on each rank. Leave it out."),
        ({"tensor_parallel": 2, "task": "prepare", "method": "ddp"}, "task prepare is one process. Leave it out."),
        ({"tensor_parallel": 2, "method": "z2", "set": ("engine=plain",)}, "Engines that can: deepspeed, fsdp2."),
        ({"tensor_parallel": 2, "cluster": "taiwania2", "set": ("engine=fsdp2",)}, "Engines that can: deepspeed."),
        ({"tensor_parallel": 2, "set": ("deepspeed.zero_optimization.zero_hpz_partition_size=2",)}, "Engines that can: fsdp2."),
        ({"set": ("tensor_parallel=2",)}, "use --tensor-parallel"),
        ({"set": ("deepspeed.tensor_parallel.autotp_size=2",)}, "--tensor-parallel lets ranks share each layer"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused_with_what_can(asked: dict[str, Any], said: str) -> None:
    assert said in refusal(**asked)


@pytest.mark.parametrize(("family", "tensor"), [("qwen3", 2), ("gpt2", 2), ("llama", 4)])
def test_a_checkpoint_is_looked_at(tmp_path: Path, family: str, tensor: int) -> None:
    config = {
        "model_type": family, "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    said = refusal(tensor_parallel=tensor, model=str(tmp_path), set=("weights=random",))
    assert "Choose one of 1, 2." in said if family == "llama" else f"the layers of {family} is not known" in said


def test_an_engine_of_another_package_has_whole_layers() -> None:
    facts = EngineFacts(name="mine", module="mine")
    engines.register(facts)
    try:
        said = refusal(method="ddp", tensor_parallel=2, set=("engine=mine",))
    finally:
        engines.unregister("mine")
    assert "engine mine has whole layers on each rank. Engines that can: deepspeed, plain." in said


def test_a_rank_is_estimated_with_its_part_of_each_layer() -> None:
    whole, part = (plan_of("z1", model="llama2-13b", tensor_parallel=n) for n in (1, 4))
    shape: Any = PRESETS["llama2-13b"]
    in_layers = num_parameters(shape) - 2 * shape.vocab_size * shape.hidden_size
    saved = sizes_in(whole).parameters - sizes_in(part).parameters
    assert saved == pytest.approx(in_layers * 3 / 4, rel=1e-3)
    assert sizes_in(part).attention * 4 == sizes_in(whole).attention


def test_a_row_says_how_many_ranks_share_a_layer(tmp_path: Path) -> None:
    run = RunPaths(tmp_path / "20260101-000000-a-run")
    run.root.mkdir()
    plan = plan_of(tensor_parallel=2)
    write_json(run.experiment, {"schema": 1, "run_id": run.run_id, "plan": plan.to_dict()})
    [found] = look([run])
    row = row_of(found, str(run.root))
    assert (row.tensor_parallel, row.world_size) == (2, 4)
