"""All engines train the same: the losses of plain AdamW, on one rank and on two, with clipping and accumulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save
from tiny_plans import RunPlan, make_plan
from worlds import Worlds

from hpc_llm.errors import WorkerError
from hpc_llm.planning.engines import OWN
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks import find as find_task
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker import engines
from hpc_llm.worker.engines import EngineKind

pytestmark = pytest.mark.train

ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
KINDS = {"plain": "ddp", "fsdp2": "z3", "flat": "z3"}
"""A method that the engine can do."""
PRECISIONS = [
    (engine, precision) for engine in KINDS for precision in ("bf16", "fp16") if (engine, precision) != ("flat", "fp16")
]
SHAPE = {"precision": "fp32", "optimizer": ADAMW, "steps": 20, "gradient_accumulation_steps": 2, "micro_batch_size": 2}
FEWER = {**SHAPE, "steps": 8}
"""Of what changes nothing about how an engine trains, which twenty steps have shown."""


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in RunPaths(folder).steps.read_text().splitlines()]


def norms(folder: Path) -> list[float | None]:
    return [json.loads(line)["grad_norm"] for line in RunPaths(folder).steps.read_text().splitlines()]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("model") / "llama", "llama")


def plans(checkpoint: Path, world_size: int) -> dict[str, Plan]:
    """One plan for each engine and each thing that they must agree in, by name."""
    found = {}
    for source in ("random", "checkpoint"):
        shape = {**FEWER, "model": str(checkpoint)} if source == "checkpoint" else SHAPE
        for engine, method in KINDS.items():
            found[f"{engine}-{source}"] = make_plan(method, world_size, engine=engine, **shape)
        found[f"deepspeed-{source}"] = make_plan("ddp", world_size, **shape)
    found["fsdp2-recompute"] = make_plan("z3r", world_size, engine="fsdp2", **FEWER)
    found["fsdp2-units"] = make_plan("z3", world_size, engine="fsdp2", layers_per_unit=2, **FEWER)
    kept = {"engine": "fsdp2", "keeps_parameters": True, "layers_per_unit": 8, "eval_every": 7}
    found["fsdp2-kept"] = make_plan("z3r", world_size, **kept, **FEWER)
    found["fsdp2-fused"] = make_plan("z3r", world_size, **{**kept, "fused_loss": True}, **FEWER)
    given_up = {"engine": "fsdp2", "eval_every": 7, "fused_loss": True}  # layers, between forward and backward
    found["fsdp2-given-up-fused"] = make_plan("z3", world_size, **given_up, **FEWER)
    found["fsdp2-z1"] = make_plan("z1", world_size, **kept, **FEWER)
    found["fsdp2-reduced"] = make_plan("z3", world_size, engine="fsdp2", reduce_precision="bf16")
    for engine, precision in PRECISIONS:
        found[f"{engine}-{precision}"] = make_plan(KINDS[engine], world_size, engine=engine, precision=precision)
    slow = {"optimizer": {**ADAMW, "lr": 3e-4}, "steps": 5}  # such steps are smaller than the spacing of bf16
    for engine, method in {**KINDS, "deepspeed": "z3"}.items():
        found[f"{engine}-slow"] = make_plan(method, world_size, engine=engine, **slow)
    found["flat-units"] = make_plan("z3r", world_size, engine="flat", layers_per_unit=2, eval_every=7, **FEWER)
    found["flat-fused"] = make_plan("z1", world_size, engine="flat", fused_loss=True, **FEWER)
    found["flat-reduced"] = make_plan("z3", world_size, engine="flat", reduce_precision="bf16")
    found["flat-reduced-sums"] = make_plan(
        "z3", world_size, engine="flat", reduce_precision="bf16", gradient_accumulation_steps=2, micro_batch_size=2
    )
    for engine, method in {**KINDS, "visiting": "z3o", "recomputing": "z3r"}.items():
        found[f"{engine}-fp8"] = make_plan(method, world_size, engine=engine if engine in KINDS else "flat", fp8=True)
    found["deepspeed-bf16"] = make_plan("ddp", world_size)
    found["plain-q"] = make_plan("q", world_size, engine="plain")
    found["deepspeed-q"] = make_plan("q", world_size)
    found["plain-lora"] = make_plan("lora", world_size, engine="plain", deepspeed={"zero_optimization": {"stage": 0}})
    found["plain-fused"] = make_plan("ddp", world_size, engine="plain", fused_loss=True, **FEWER)
    at_once = {"engine": "plain", **FEWER, "gradient_accumulation_steps": 1}  # DDP averages as gradients are made
    found["plain-at-once"] = make_plan("ddp", world_size, **at_once)
    found["flat-at-once"] = make_plan("z2", world_size, **{**at_once, "engine": "flat"})
    found["plain-at-once-fused"] = make_plan("ddp", world_size, fused_loss=True, **at_once)
    lora = {"engine": "plain", "deepspeed": {"zero_optimization": {"stage": 0}}, **FEWER}
    found["plain-lora-fp32"] = make_plan("lora", world_size, **lora)
    found["plain-lora-fused"] = make_plan("lora", world_size, fused_lora=True, fused_loss=True, **lora)
    found["plain-qlora"] = make_plan("qlora", world_size, engine="plain", deepspeed={"zero_optimization": {"stage": 0}})
    return found


@pytest.fixture(scope="module", params=[1, 2])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, worlds: Worlds
) -> Path:
    """The folder with a run for each plan, trained one after another by the same ranks."""
    folder = tmp_path_factory.mktemp(f"ranks-{request.param}")
    wanted = {name: {"plan": plan.to_dict(), "mask": False} for name, plan in plans(checkpoint, request.param).items()}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    worlds.must_run("two_ranks", folder, request.param)
    return folder


def result(folder: Path) -> dict[str, Any]:
    return read_json(RunPaths(folder).result) or {}


@pytest.mark.parametrize("source", ["random", "checkpoint"])
def test_all_engines_give_the_same_losses_and_norms(trained: Path, source: str) -> None:
    expected = trained / f"deepspeed-{source}"
    assert losses(expected)[-1] < losses(expected)[0] - (0.2 if source == "random" else 0.05)
    for engine in KINDS:
        assert result(trained / f"{engine}-{source}")["engine"] == engine
        assert losses(trained / f"{engine}-{source}") == pytest.approx(losses(expected), rel=1e-5)
    assert norms(trained / f"plain-{source}") == pytest.approx(norms(trained / f"fsdp2-{source}"), rel=1e-4)
    assert max(norm or 0.0 for norm in norms(trained / f"plain-{source}")) > 1.0  # clipping had something to do


def test_fused_parts_change_no_loss(trained: Path) -> None:
    assert result(trained / "plain-fused")["fused"] == ["fused_loss"]
    assert losses(trained / "plain-fused") == pytest.approx(losses(trained / "plain-random")[:8], rel=1e-6)
    assert losses(trained / "plain-at-once-fused") == pytest.approx(losses(trained / "plain-at-once"), rel=1e-6)
    assert result(trained / "plain-lora-fused")["fused"] == ["fused_lora", "fused_loss"]
    assert result(trained / "fsdp2-fused")["fused"] == ["fused_loss"]
    assert losses(trained / "fsdp2-given-up-fused") == pytest.approx(losses(trained / "fsdp2-random")[:8], rel=1e-6)
    assert losses(trained / "fsdp2-fused") == pytest.approx(losses(trained / "fsdp2-kept"), rel=1e-6)
    assert result(trained / "fsdp2-fused")["eval_loss"] == pytest.approx(
        result(trained / "fsdp2-kept")["eval_loss"], rel=1e-6
    )
    assert losses(trained / "plain-lora-fused") == pytest.approx(losses(trained / "plain-lora-fp32"), rel=1e-6)


def test_a_result_holds_what_its_task_says(trained: Path) -> None:
    found = result(trained / "plain-random")
    assert find_task("pretrain").result_fields <= found.keys()
    assert found["held_bytes"]["parameters"] == {"device": 0, "host": 4 * found["num_parameters"]}


def test_recomputing_changes_nothing(trained: Path) -> None:
    assert losses(trained / "fsdp2-recompute") == pytest.approx(losses(trained / "fsdp2-random")[:8], rel=1e-5)


@pytest.mark.parametrize("how", ["fsdp2-units", "fsdp2-kept", "fsdp2-z1", "flat-units", "flat-fused"])
def test_units_of_layers_and_kept_parameters_change_nothing(trained: Path, how: str) -> None:
    assert losses(trained / how) == pytest.approx(losses(trained / "deepspeed-random")[:8], rel=1e-5)
    assert norms(trained / how) == pytest.approx(norms(trained / "plain-random")[:8], rel=1e-4)


def test_gradients_of_one_micro_batch_are_the_same_in_rows(trained: Path) -> None:
    assert losses(trained / "flat-at-once") == pytest.approx(losses(trained / "plain-at-once"), rel=1e-5)
    assert norms(trained / "flat-at-once") == pytest.approx(norms(trained / "plain-at-once"), rel=1e-4)


@pytest.mark.parametrize("how", ["fsdp2-reduced", "flat-reduced", "flat-reduced-sums"])
def test_gradients_that_are_summed_in_bf16_learn_as_well(trained: Path, how: str) -> None:
    expected = losses(trained / f"{how.partition('-')[0]}-bf16")
    assert losses(trained / how)[-1] == pytest.approx(expected[-1], abs=0.05)


@pytest.mark.parametrize(("engine", "precision"), PRECISIONS)
def test_low_precision_learns_as_well(trained: Path, engine: str, precision: str) -> None:
    expected = losses(trained / "deepspeed-bf16")[-1]
    ended = result(trained / f"{engine}-{precision}")
    assert ended["outcome"] == "COMPLETED" and ended["loss_last"] == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("engine", KINDS)
def test_engines_begin_with_the_same_rounded_weights(trained: Path, engine: str) -> None:
    assert losses(trained / f"{engine}-slow") == pytest.approx(losses(trained / "deepspeed-slow"), abs=1e-3)


def test_fp8_trains_the_same_with_each_engine_and_near_bf16(trained: Path) -> None:
    for engine in KINDS:
        found, expected = losses(trained / f"{engine}-fp8"), losses(trained / f"{engine}-bf16")
        assert "fp8" in result(trained / f"{engine}-fp8")["fused"] and found != expected
        assert found[:6] == pytest.approx(expected[:6], abs=0.05) and found[-1] == pytest.approx(expected[-1], abs=0.3)
    for kind in ("visiting", "recomputing"):
        assert losses(trained / f"{kind}-fp8") == pytest.approx(losses(trained / "flat-fp8"), rel=1e-3)


def test_a_quantized_base_and_lora_train_in_plain_torch(trained: Path) -> None:
    for name in ("plain-q", "plain-lora", "plain-qlora"):
        ended = result(trained / name)
        assert ended["outcome"] == "COMPLETED" and ended["loss_last"] < ended["loss_first"]
        assert ended["trainable_parameters"] < 0.3 * ended["num_parameters"]
    # DeepSpeed hands bitsandbytes all parameters as one, so that small ones have 8-bit moments there, too.
    assert losses(trained / "plain-q")[-1] == pytest.approx(losses(trained / "deepspeed-q")[-1], abs=0.3)


def test_fsdp2_splits_what_plain_holds_whole(trained: Path) -> None:
    ranks = len(list(trained.glob("plain-random/held-*.json")))
    whole = read_json(trained / "plain-random" / "held-0.json") or {}
    shares = [read_json(trained / "fsdp2-random" / f"held-{rank}.json") or {} for rank in range(ranks)]
    assert sum(share["parameters"]["host"] for share in shares) == whole["parameters"]["host"]
    assert max(share["optimizer"]["host"] for share in shares) <= whole["optimizer"]["host"] / ranks * 1.01


def test_flat_units_split_all_but_the_parameters(trained: Path) -> None:
    """In bf16: 2 bytes a parameter are whole; 4 of an fp32 copy, 8 of moments are split; gradients in 2 rows and a share."""
    ranks = len(list(trained.glob("flat-reduced/held-*.json")))
    held, count = (
        read_json(trained / "flat-reduced" / "held-0.json") or {},
        result(trained / "flat-reduced")["num_parameters"],
    )
    assert held["parameters"]["host"] == pytest.approx(2 * count, rel=0.01)
    assert held["optimizer"]["host"] == pytest.approx(12 * count / ranks, rel=0.01)
    assert 2 * count / ranks < held["gradients"]["host"] < 2 * count / ranks + 2 * 2 * count


def test_a_scaled_step_that_overflows_is_skipped(run_plan: RunPlan) -> None:
    plan = make_plan(
        "ddp", engine="plain", precision="fp16", deepspeed={"fp16": {"enabled": True, "initial_scale_power": 40}}
    )
    ended = run_plan(plan)
    assert (ended["skipped_steps"], ended["outcome"]) == (12, "INVALID")
    assert "overflowed" in ended["invalid_reason"]


def test_the_fallback_runs_where_the_node_cannot_run_the_engine(
    run_plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str, module: str | None = None) -> EngineKind:
        kind = real(name, module)
        old = "it needs torch 2.6, here is 2.3"
        return kind if name != "fsdp2" else EngineKind(name, lambda: old, kind.join, kind.build)

    real = engines.find
    monkeypatch.setattr(engines, "find", found)
    ended = run_plan(make_plan("z3", engine="fsdp2"))
    assert (
        ended["engine"] == "deepspeed"
        and "deepspeed runs in place of fsdp2, for it needs torch 2.6" in ended["adaptations"][0]
    )
    plan = make_plan("z3", engine="fsdp2", engine_fallback=None)
    with pytest.raises(WorkerError, match="the engine fsdp2 cannot run on this node"):
        engines.choose(plan)


def test_each_engine_is_one_module() -> None:
    assert [engines.find(name).name for name in OWN] == list(OWN)
    with pytest.raises(WorkerError, match="engine 'horovod'"):
        engines.find("horovod")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("not_there_at_all", "cannot be used: No module named 'not_there_at_all'."),
        ("json", "cannot be used: module 'json' has no attribute 'kind'."),
        ("hpc_llm.worker.engines.plain", "its KIND is no EngineKind of that name."),
    ],
)
def test_one_from_elsewhere_that_this_node_cannot_use_is_one_sentence(module: str, why: str) -> None:
    plan = make_plan("ddp", engine="mine", engine_module=module)
    with pytest.raises(WorkerError) as caught:
        engines.choose(plan)
    assert str(caught.value).startswith(f"the engine mine of {module} cannot be used: ")
    assert str(caught.value).endswith(why)
