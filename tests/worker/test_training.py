"""Every method trains for real on the CPU, and the full-precision ones as plain PyTorch does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from masking import masked
from rendering import planned
from tiny_models import first_loss, save
from tiny_plans import METHODS, RunPlan, make_plan, prepared
from worlds import Worlds

from hpc_llm.planning.experiment import Plan
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.worker import loop
from hpc_llm.worker.measure.meter import Meter

pytestmark = pytest.mark.train

SHARDED = {"z2o": "gpt2", "z3": "qwen2", "z3lora": "llama"}
ADAMW = {"type": "AdamW", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}


@pytest.mark.parametrize("method", METHODS)
def test_each_method_trains_on_one_rank(method: str, run_plan: RunPlan, tmp_path: Path) -> None:
    result = run_plan(make_plan(method))
    assert result["outcome"] == "COMPLETED"
    assert result["loss_last"] < result["loss_first"] - 0.2
    assert result["measured_steps"] == len(result["step_times_s"]) == 10
    assert result["tokens_per_second"] == pytest.approx(4 * 64 / result["step_time_s_mean"])
    rates = [row["learning_rate"] for row in step_rows(tmp_path / "run")]
    assert rates == pytest.approx([1e-2 / 3, 2e-2 / 3, *[1e-2] * 10])


def test_the_result_says_what_ran(run_plan: RunPlan, tmp_path: Path) -> None:
    result = run_plan(make_plan("q", gradient_accumulation_steps=2))
    assert result["num_parameters"] == 524_928
    assert result["trainable_parameters"] == 2 * 512 * 128 + 5 * 128  # embeddings, head and norms
    products = 524_928 - 512 * 128 - 5 * 128  # without the embeddings that are looked up, and the norms
    assert result["flops_per_token"] == 4 * products + 2 * 512 * 128 + 12 * 2 * 128 * 64
    assert result["global_batch_size"] == 8
    assert result["gpu"] is None
    assert result["mfu"] is None
    assert result["peak_allocated_bytes"] is None
    assert result["peak_host_bytes"] > 2**20
    assert result["versions"]["deepspeed"]
    rows = [json.loads(line) for line in RunPaths(tmp_path / "run").steps.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["warmup"] for row in rows] == [True] * 2 + [False] * 10
    assert [row["step_time_s"] for row in rows[2:]] == result["step_times_s"]
    assert rows[-1]["learning_rate"] == 1e-2
    assert rows[-1]["loss"] == result["loss_last"]


def test_tokens_per_second_agree_with_a_clock_of_ones_own(run_plan: RunPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the begin of the first measured step to the end of the last one, all that lies between them included."""
    step, close, began, ended, closed = loop.take_step, Meter.close, [], [], []

    def timed(*arguments: Any) -> Any:
        began.append(time.monotonic())
        loss = step(*arguments)
        ended.append(time.monotonic())
        return loss

    def close_timed(meter: Meter) -> None:
        close(meter)
        closed.append(time.monotonic())

    monkeypatch.setattr(loop, "take_step", timed)
    monkeypatch.setattr(Meter, "close", close_timed)
    plan = make_plan("z2", steps=17)
    result = run_plan(plan)
    warmup, tokens = plan.workload.warmup_steps, 15 * 4 * 64
    least, most = ended[-1] - began[warmup], closed[0] - ended[warmup - 1]
    assert least <= result["measured_window_s"] <= most
    assert tokens / most <= result["tokens_per_second"] <= tokens / least
    assert result["device_clock_s"] is None  # the CPU has no clock but the host's


def test_text_trains_too(run_plan: RunPlan, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It was the best of times, it was the worst of times.\n" * 200, encoding="utf-8")
    result = run_plan(make_plan("z2", **prepared(text), steps=16))
    assert result["loss_last"] < result["loss_first"] - 1


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with fixed weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from hpc_llm.planning.model import PRESETS
    from hpc_llm.worker.model.shapes import hf_config

    folder = tmp_path_factory.mktemp("model") / "tiny"
    torch.manual_seed(3)
    AutoModelForCausalLM.from_config(hf_config(PRESETS["tiny"]), dtype=torch.float32).save_pretrained(folder)
    return folder


def plain_losses(checkpoint: Path, plan: Plan, mask: bool = False) -> list[float]:
    """Losses of plain PyTorch AdamW in fp32, each step on the batches of all ranks together, every token alike."""
    import torch
    from transformers import AutoModelForCausalLM

    from hpc_llm.worker.data import batches
    from hpc_llm.worker.data.batch import labels_of
    from hpc_llm.worker.ranks import Ranks

    world_size, cpu = plan.parallel.world_size, torch.device("cpu")
    streams = [batches(plan, 512, Ranks(r, world_size, r, world_size, "", 0, ""), cpu) for r in range(world_size)]
    if mask:
        streams = [masked(stream, rank) for rank, stream in enumerate(streams)]
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    values = {key: value for key, value in ADAMW.items() if key != "type"}
    optimizer = torch.optim.AdamW(model.parameters(), **values)  # type: ignore[arg-type]
    losses = []
    for step in range(1, plan.workload.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = values["lr"] * min(step / plan.workload.lr_ramp_steps, 1)
        drawn = [next(stream) for stream in streams for _ in range(plan.batch.gradient_accumulation_steps)]
        tokens = torch.cat([batch["input_ids"] for batch in drawn])
        labels = torch.cat([labels_of(batch) for batch in drawn])
        loss = model(input_ids=tokens, labels=labels).loss  # transformers' mean over what is not masked
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def step_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunPaths(folder).steps.read_text().splitlines()]


def step_losses(folder: Path) -> list[float]:
    return [row["loss"] for row in step_rows(folder)]


@pytest.mark.parametrize("method", ["z2o", "z3", "z3o"])
def test_in_fp32_the_loss_is_that_of_plain_adamw(
    method: str, run_plan: RunPlan, tmp_path: Path, checkpoint: Path
) -> None:
    plan = make_plan(method, model=str(checkpoint), precision="fp32", optimizer=ADAMW)
    run_plan(plan)
    assert step_losses(tmp_path / "run") == pytest.approx(plain_losses(checkpoint, plan), rel=1e-4)


def masked_plan(method: str, checkpoint: Path, world_size: int = 1) -> Plan:
    shape = {"micro_batch_size": 2, "gradient_accumulation_steps": 3}
    return make_plan(method, world_size, model=str(checkpoint), precision="fp32", optimizer=ADAMW, **shape)


@pytest.mark.parametrize("method", ["ddp", "z3"])
def test_each_predicted_token_counts_the_same_whatever_micro_batch_it_is_in(
    method: str, run_plan: RunPlan, tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpc_llm.worker.tasks import training

    made = training.batches
    monkeypatch.setattr(training, "batches", lambda *arguments, **more: masked(made(*arguments, **more), 0))
    plan = masked_plan(method, checkpoint)
    assert run_plan(plan)["outcome"] == "COMPLETED"
    assert step_losses(tmp_path / "run") == pytest.approx(plain_losses(checkpoint, plan, mask=True), rel=1e-4)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, worlds: Worlds) -> Path:
    """Two ranks that train one method after another in one start: the folder with a run for each."""
    folder = tmp_path_factory.mktemp("two-ranks")
    plans = {f"{method}-bf16": make_plan(method, 2) for method in METHODS}
    for method in ("z2o", "z3", "z3o"):
        plans[f"{method}-fp32"] = make_plan(method, 2, model=str(checkpoint), precision="fp32", optimizer=ADAMW)
    plans["q-checkpoint"] = make_plan("q", 2, model=str(checkpoint))
    for method, family in SHARDED.items():
        model = save(folder / family, family, shards=True)
        plans[f"{method}-{family}"] = make_plan(method, 2, model=str(model), precision="fp32", steps=3, warmup_steps=0)
    for method in ("z2o", "z3"):
        plans[f"{method}-masked"] = masked_plan(method, checkpoint, 2)
    request = {name: {"plan": plan.to_dict(), "mask": name.endswith("-masked")} for name, plan in plans.items()}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    worlds.must_run("two_ranks", folder, 2)
    return folder


@pytest.mark.parametrize("name", [*(f"{method}-bf16" for method in METHODS), "q-checkpoint"])
def test_each_method_trains_on_two_ranks(name: str, two_ranks: Path) -> None:
    result = read_json(RunPaths(two_ranks / name).result)
    assert result is not None
    assert result["outcome"] == "COMPLETED"
    assert result["world_size"] == 2
    assert result["loss_last"] < result["loss_first"] - 0.2


@pytest.mark.parametrize("method", ["z2o", "z3", "z3o"])
def test_two_ranks_in_fp32_give_the_loss_of_plain_adamw_on_both_their_batches(
    method: str, two_ranks: Path, checkpoint: Path
) -> None:
    losses = step_losses(two_ranks / f"{method}-fp32")
    plan = make_plan(method, 2, model=str(checkpoint))
    assert losses == pytest.approx(plain_losses(checkpoint, plan), rel=1e-4)


@pytest.mark.parametrize("method", ["z2o", "z3"])
def test_each_predicted_token_counts_the_same_whatever_rank_it_is_on(
    method: str, two_ranks: Path, checkpoint: Path
) -> None:
    expected = plain_losses(checkpoint, masked_plan(method, checkpoint, 2), mask=True)
    assert step_losses(two_ranks / f"{method}-masked") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("method", SHARDED)
def test_two_ranks_start_from_the_weights_of_a_sharded_checkpoint(method: str, two_ranks: Path) -> None:
    family = SHARDED[method]
    plan = make_plan(method, 2, model=str(two_ranks / family))
    expected = first_loss(two_ranks / family, plan)
    assert step_losses(two_ranks / f"{method}-{family}")[0] == pytest.approx(expected, rel=1e-5)
    held = [read_json(two_ranks / f"{method}-{family}" / f"held-{rank}.json") for rank in (0, 1)]
    whole = read_json(RunPaths(two_ranks / f"{method}-{family}").result)
    assert whole is not None and held[0] is not None and held[1] is not None
    copies = sum(one["parameters"]["host"] for one in held if one) / (4 * whole["num_parameters"])
    assert copies == pytest.approx(1 if method.startswith("z3") else 2, rel=0.01)


@pytest.mark.parametrize(("method", "whole", "optimizer"), [("z2o", 1.0, 0.5), ("z3", 0.5, 0.5), ("z3o", 0.5, 0.5)])
def test_each_rank_holds_its_share_only(method: str, whole: float, optimizer: float, two_ranks: Path) -> None:
    for rank in (0, 1):
        held = read_json(two_ranks / f"{method}-bf16" / f"held-{rank}.json")
        assert held is not None
        assert held["parameters"]["host"] / (2 * 524_928) == pytest.approx(whole, rel=0.01)  # bf16
        assert held["optimizer"]["host"] / (12 * 524_928) == pytest.approx(
            optimizer, rel=0.01
        )  # fp32 copy, two moments


@pytest.mark.parametrize(("method", "below"), [("z3", 4.0), ("qlora", 6.0)])
def test_what_is_chosen_when_nothing_is_said_learns(
    method: str, below: float, run_plan: RunPlan, tmp_path: Path
) -> None:
    """More than which tokens occur, for that is worth ln 64 = 4.16 nats; adapters on a random base get less far."""
    plan = planned(
        "local", method, hardware=None, gpus_per_node=0, micro_batch_size=4, sequence_length=64, steps=100
    ).plan
    result = run_plan(plan)
    losses = step_losses(tmp_path / "run")
    assert result["outcome"] == "COMPLETED", result["outcome_reason"]
    assert max(losses) < losses[0] + 0.1
    assert plan.workload.loss_floor_nats is not None
    assert plan.workload.loss_floor_nats < losses[-1] < below
