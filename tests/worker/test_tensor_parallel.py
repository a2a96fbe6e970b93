"""Ranks that share layers train what one rank trains: every engine and ZeRO stage, with data parallel, adapters, saving and going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_sessions import carry_out
from tiny_models import save
from tiny_plans import make_plan

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
SHAPE = {
    "precision": "fp32",
    "optimizer": ADAMW,
    "steps": 12,
    "micro_batch_size": 2,
    "model": "tiny-h8",
    "weights": "random",
}
PLAIN = {"engine": "plain", "deepspeed": {"zero_optimization": {"stage": 0}}}
DROPPING = {"kind": "lora", "r": 8, "alpha": 16, "dropout": 0.1, "target_modules": "all-linear"}
BF16 = {**ADAMW, "type": "AdamWBF16"}
OVERFLOWS = {
    "engine": "plain",
    "precision": "fp16",
    "deepspeed": {"fp16": {"enabled": True, "initial_scale_power": 24}},
}

ALONE = {
    "plain": ("ddp", PLAIN), "deepspeed-0": ("ddp", {}), "deepspeed-1": ("z1", {}), "deepspeed-2": ("z2", {}),
    "deepspeed-3": ("z3", {}), "deepspeed-3o": ("z3o", {}), "fsdp2-3": ("z3", {"engine": "fsdp2"}),
}  # fmt: skip
"""What trains the same on one rank and on two that share layers, by name: method and changes."""
ADAPTED = {
    "plain-lora": ("lora", {**PLAIN, "save_every": 12}), "deepspeed-lora": ("z3lora", {"recompute": 0.5}), "fsdp2-lora": ("z3lora", {"engine": "fsdp2"}),
}  # fmt: skip


def plan(method: str, ranks: int, tensor: int, **changes: Any) -> Plan:
    """A plan in which so many of the ranks share each layer."""
    made = make_plan(method, ranks // tensor, **{**SHAPE, **changes})
    return made.changed(world_size=ranks, tasks_per_node=ranks, tensor_parallel=tensor)


def trains(plan: Plan) -> dict[str, Any]:
    return {"trains": True, "ranks": plan.parallel.world_size, "plan": plan.to_dict()}


def goes_on(plan: Plan, **wanted: Any) -> dict[str, Any]:
    """A session in which all ranks train on what one would."""
    nothing = {"load": None, "save": None, "weights": None, "after": 0, "steps": 6, "same": True}
    return {**nothing, **wanted, "trains": False, "ranks": plan.parallel.world_size, "plan": plan.to_dict()}


def requests(folder: Path) -> dict[str, Any]:
    found = {}
    for name, (method, changes) in (ALONE | ADAPTED).items():
        found[f"{name}-shared"] = trains(plan(method, 2, 2, **changes))
    for name, (method, changes) in ({"plain": ALONE["plain"]} | ADAPTED).items():
        found[f"{name}-one"] = trains(plan(method, 1, 1, **changes))
    measured = {**PLAIN, "gradient_accumulation_steps": 2, "eval_every": 6, "save_every": 12}
    found["two"] = trains(plan("ddp", 2, 1, **measured))
    found["two-by-two"] = trains(plan("ddp", 4, 2, **measured))
    found["two-by-two-3"] = trains(plan("z3", 4, 2, gradient_accumulation_steps=2, eval_every=6, steps=6))
    found["two-by-two-fsdp2"] = trains(plan("z2", 4, 2, engine="fsdp2", gradient_accumulation_steps=2, eval_every=6))
    found["eight"] = trains(plan("ddp", 8, 8, **PLAIN, steps=8))
    checkpoint = {"model": str(save(folder / "qwen2", "qwen2")), "weights": "checkpoint", "steps": 8}
    for how, ranks in (("one", 1), ("shared", 2)):
        found[f"loaded-{how}"] = trains(plan("lora", ranks, ranks, **PLAIN, **checkpoint))
    found["dropping"] = trains(plan("lora", 2, 2, **PLAIN, peft=DROPPING))
    found["in-bf16"] = trains(plan("ddp", 2, 2, engine="plain", precision="bf16", optimizer=BF16))
    found["overflows"] = trains(plan("ddp", 2, 2, **OVERFLOWS))
    found["overflows-one"] = trains(plan("ddp", 1, 1, **OVERFLOWS))
    kept = {name: str(folder / name) for name in ("kept-one", "kept-shared", "kept-3")}
    one, shared = plan("ddp", 1, 1, **PLAIN), plan("ddp", 4, 2, **PLAIN)
    three, fsdp2 = plan("z3", 4, 2), plan("z3", 4, 2, engine="fsdp2")
    found["whole"] = goes_on(one, steps=12, save=kept["kept-one"], after=6)
    found["saves"] = goes_on(shared, save=kept["kept-shared"], after=6)
    found["saves-3"] = goes_on(three, save=kept["kept-3"], after=6)
    found["on-from-one"] = goes_on(fsdp2, load=kept["kept-one"])
    found["on-to-one"] = goes_on(one, load=kept["kept-shared"])
    found["on-from-3"] = goes_on(plan("z1", 2, 2), load=kept["kept-3"])
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, copied_ranks: None) -> Path:
    """The folder with all sessions, one after another."""
    folder = tmp_path_factory.mktemp("shared")
    return carry_out(requests(folder), folder)


def steps(folder: Path, key: str = "loss", what: str = "steps") -> list[float]:
    path: Path = getattr(RunPaths(folder), what)
    return [json.loads(line)[key] for line in path.read_text().splitlines()]


def result(folder: Path) -> dict[str, Any]:
    return read_json(RunPaths(folder).result) or {}


def found(folder: Path) -> list[dict[str, Any]]:
    return [read_json(path) or {} for path in sorted(folder.glob("found-*.json"))]


@pytest.mark.parametrize("name", [*ALONE, *ADAPTED])
def test_two_ranks_that_share_layers_train_what_one_trains(done: Path, name: str) -> None:
    one = done / (f"{name}-one" if name in ADAPTED else "plain-one")
    assert steps(one)[-1] < steps(one)[0] - 0.05
    assert steps(done / f"{name}-shared") == pytest.approx(steps(one), abs=1e-5)
    if None not in steps(done / f"{name}-shared", "grad_norm"):
        assert steps(done / f"{name}-shared", "grad_norm") == pytest.approx(steps(one, "grad_norm"), rel=1e-4)


def test_eight_ranks_that_share_layers_train_what_one_trains(done: Path) -> None:
    assert steps(done / "eight") == pytest.approx(steps(done / "plain-one")[:8], abs=1e-5)


def test_a_checkpoint_with_biases_and_tied_embeddings_is_shared_as_well(done: Path) -> None:
    assert steps(done / "loaded-shared") == pytest.approx(steps(done / "loaded-one"), abs=1e-5)


@pytest.mark.parametrize("name", ["two-by-two", "two-by-two-3", "two-by-two-fsdp2"])
def test_groups_of_ranks_train_what_as_many_ranks_train(done: Path, name: str) -> None:
    count = len(steps(done / name))
    assert count >= 6 and steps(done / name) == pytest.approx(steps(done / "two")[:count], abs=1e-5)
    shared, whole = result(done / name), result(done / "two")
    same = ("num_parameters", "trainable_parameters", "flops_per_token", "data_parallel", "eval_tokens")
    assert {key: shared[key] for key in same} == {key: whole[key] for key in same}
    assert shared["trained_tokens"] * 12 == whole["trained_tokens"] * count
    assert steps(done / name, "eval_loss", "evaluations")[0] == pytest.approx(
        steps(done / "two", "eval_loss", "evaluations")[0], abs=1e-5
    )
    assert (shared["tensor_parallel"], shared["world_size"], whole["tensor_parallel"]) == (2, 4, 1)
    assert shared["tokens_per_second_per_gpu"] == pytest.approx(shared["tokens_per_second"] / 4)
    tokens = 2 * 2 * 2 * 64  # groups, micro batches, sequences in one, tokens of one
    assert steps(done / name, "tokens_per_second") == pytest.approx(
        [tokens / time for time in steps(done / name, "step_time_s")]
    )


def test_each_rank_holds_its_part_of_the_layers_and_embeddings_and_norms_whole(done: Path) -> None:
    hidden, inner, layers, vocabulary = 128, 384, 2, 512
    matrices = layers * (4 * hidden * hidden + 3 * hidden * inner)
    others = (2 * vocabulary + 2 * layers + 1) * hidden
    for name, part in (("plain-one", 1), ("plain-shared", 2), ("eight", 8)):
        assert result(done / name)["held_bytes"]["parameters"] == {"device": 0, "host": 4 * (matrices // part + others)}
    assert result(done / "plain-shared")["num_parameters"] == matrices + others


@pytest.mark.parametrize("name", ["plain-shared", "deepspeed-2-shared", "dropping", "in-bf16", "overflows", "eight"])
def test_what_ranks_hold_whole_stays_the_same_on_all_of_them(done: Path, name: str) -> None:
    ended = found(done / name)
    assert len(ended) > 1 and {one["code"] for one in ended} == {0} and len({one["whole"] for one in ended}) == 1


def test_ranks_that_share_layers_skip_a_step_together(done: Path) -> None:
    shared, one = result(done / "overflows"), result(done / "overflows-one")
    assert shared["skipped_steps"] == one["skipped_steps"] > 0
    assert shared["loss_last"] == pytest.approx(one["loss_last"], abs=0.05)


def test_training_goes_on_wherever_it_was_saved(done: Path) -> None:
    whole = found(done / "whole")[0]["losses"]
    assert found(done / "saves")[0]["losses"] == pytest.approx(whole[:6], abs=1e-5)
    for name in ("on-from-one", "on-to-one", "on-from-3"):
        after = found(done / name)[0]
        assert after.get("error") is None and after["losses"] == pytest.approx(whole[6:], abs=1e-5), name


def test_what_is_saved_is_the_whole_model(done: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    tokens = torch.arange(64).view(1, -1)
    with torch.no_grad():
        one, shared = (
            AutoModelForCausalLM.from_pretrained(RunPaths(done / name).model)(tokens).logits
            for name in ("two", "two-by-two")
        )
    assert torch.allclose(one, shared, atol=1e-4)


def test_adapters_are_saved_whole(done: Path) -> None:
    from safetensors.torch import load_file

    one, shared = (
        load_file(RunPaths(done / f"plain-lora-{how}").model / "adapter_model.safetensors") for how in ("one", "shared")
    )
    assert one.keys() == shared.keys()
    for name, values in one.items():
        assert shared[name].shape == values.shape and (shared[name] - values).abs().max() < 1e-5, name
