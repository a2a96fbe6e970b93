"""FSDP2 that splits within each node alone trains what it trains split among all, and its checkpoints are everybody's.

The two nodes are two halves of the ranks of this machine: which ranks are a node's is said by the plan.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_sessions import carry_out
from tiny_plans import make_plan

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.train

ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
SHAPE = {
    "engine": "fsdp2", "precision": "fp32", "optimizer": ADAMW, "steps": 6, "micro_batch_size": 2,
    "gradient_accumulation_steps": 2, "model": "tiny-h8", "weights": "random",
}  # fmt: skip
LORA = {"kind": "lora", "r": 8, "alpha": 16, "dropout": 0.0, "target_modules": "all-linear"}


def plan(method: str, ranks: int, *, nodes: int = 1, tensor: int = 1, **changes: Any) -> Plan:
    made = make_plan(method, ranks // tensor, **{**SHAPE, **changes})
    return made.changed(
        nodes=nodes, world_size=ranks, tasks_per_node=ranks // nodes, tensor_parallel=tensor, hybrid_sharding=nodes > 1
    )


def trains(plan: Plan) -> dict[str, Any]:
    return {"trains": True, "ranks": plan.parallel.world_size, "plan": plan.to_dict()}


def goes_on(plan: Plan, steps: int, **wanted: Any) -> dict[str, Any]:
    """A session in which all ranks train on what one would."""
    nothing = {"load": None, "save": None, "weights": None, "after": 0, "same": True}
    return {
        **nothing,
        **wanted,
        "steps": steps,
        "trains": False,
        "ranks": plan.parallel.world_size,
        "plan": plan.to_dict(),
    }


def requests(folder: Path) -> dict[str, Any]:
    kept = {name: str(folder / f"kept-{name}") for name in ("one", "hybrid")}
    lora, low = {"peft": LORA}, {"precision": "fp16"}
    hybrid = plan("z3", 4, nodes=2)
    return {
        "split": trains(plan("z3", 4)),
        "hybrid": trains(hybrid),
        "hybrid-kept": trains(plan("z2", 4, nodes=2, keeps_parameters=True, layers_per_unit=8, eval_every=3)),
        "one-rank-nodes": trains(plan("z3", 4, nodes=4)),
        "lora": trains(plan("z3lora", 4, **lora, save_every=6)),
        "lora-hybrid": trains(plan("z3lora", 4, nodes=2, **lora, save_every=6)),
        "fp16": trains(plan("z3", 4, **low)),
        "fp16-hybrid": trains(plan("z3", 4, nodes=2, **low)),
        "pairs": trains(plan("z3", 4, tensor=2)),
        "pairs-hybrid": trains(plan("z3", 4, nodes=2, tensor=2)),
        "whole": goes_on(plan("z3", 1), 8, save=kept["one"], after=4),
        "saves": goes_on(hybrid, 4, save=kept["hybrid"], after=4),
        "on-to-hybrid": goes_on(hybrid, 4, load=kept["one"]),
        "on-to-two": goes_on(plan("z3", 2), 4, load=kept["hybrid"]),
    }


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, copied_ranks: None) -> Path:
    """The folder with all sessions, one after another."""
    folder = tmp_path_factory.mktemp("hybrid")
    return carry_out(requests(folder), folder)


def steps(folder: Path, key: str = "loss") -> list[float]:
    return [json.loads(line)[key] for line in RunPaths(folder).steps.read_text().splitlines()]


def held(folder: Path) -> int:
    found = read_json(RunPaths(folder).result) or {}
    return int(found["held_bytes"]["parameters"]["host"])


@pytest.mark.parametrize(
    ("one", "other"),
    [("hybrid", "split"), ("hybrid-kept", "split"), ("one-rank-nodes", "split"), ("lora-hybrid", "lora"), ("pairs-hybrid", "pairs")],
)  # fmt: skip
def test_it_trains_the_same_split_within_nodes(done: Path, one: str, other: str) -> None:
    assert steps(done / one) == pytest.approx(steps(done / other), rel=1e-5)
    assert steps(done / one, "grad_norm") == pytest.approx(steps(done / other, "grad_norm"), rel=1e-4)


def test_losses_are_scaled_in_fp16_as_well(done: Path) -> None:
    assert steps(done / "fp16-hybrid") == pytest.approx(steps(done / "fp16"), abs=5e-3)
    assert steps(done / "fp16-hybrid", "grad_norm") == pytest.approx(steps(done / "fp16", "grad_norm"), rel=2e-2)


def test_each_node_holds_a_whole_model(done: Path) -> None:
    assert held(done / "hybrid") == 2 * held(done / "split")
    assert held(done / "one-rank-nodes") == 4 * held(done / "split")


def test_a_checkpoint_has_everything_once_and_goes_on_anywhere(done: Path) -> None:
    whole = (read_json(done / "whole" / "found-0.json") or {})["losses"]
    assert (read_json(done / "saves" / "found-0.json") or {})["losses"] == pytest.approx(whole[:4], rel=1e-5)
    for name in ("on-to-hybrid", "on-to-two"):
        after = read_json(done / name / "found-0.json") or {}
        assert after.get("error") is None and after["losses"] == pytest.approx(whole[4:], rel=1e-5), name
    one, hybrid = (
        sum(file.stat().st_size for file in (done / f"kept-{name}" / "engine").glob("shard-*.bin"))
        for name in ("one", "hybrid")
    )
    assert one <= hybrid < 1.05 * one  # stretches begin at multiples of 64 bytes


def test_adapters_are_saved_whole(done: Path) -> None:
    from safetensors.torch import load_file

    split, hybrid = (
        load_file(RunPaths(done / name).model / "adapter_model.safetensors") for name in ("lora", "lora-hybrid")
    )
    assert split.keys() == hybrid.keys()
    assert all((hybrid[name] - values).abs().max() < 1e-5 for name, values in split.items())
