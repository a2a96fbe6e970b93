"""The learning rate of a plan with one of DeepSpeed's schedules, held to what the installed DeepSpeed makes of the plan's config."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from rendering import cluster_of, planned, site

from hpc_llm.errors import RequestError
from hpc_llm.planning.experiment import Experiment, PlanWithOrigins
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import plan

RATES = """
import json, logging, sys
logging.disable(logging.CRITICAL)
import torch
from deepspeed.runtime import lr_schedules
found = []
for config, steps in json.load(sys.stdin):
    params = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=params["lr"])
    block = config["scheduler"]
    schedule = getattr(lr_schedules, block["type"])(optimizer, **block["params"])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    found.append(rates)
print("@@" + json.dumps(found))
"""


def rates(plans: list[PlanWithOrigins]) -> list[list[float]]:
    """The learning rate of each step of the plans, by DeepSpeed's own classes."""
    asked = [(one.plan.engine.deepspeed, one.plan.workload.steps) for one in plans]
    done = subprocess.run(
        [sys.executable, "-c", RATES], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert "@@" in done.stdout, done.stderr[-2000:]
    found: list[list[float]] = json.loads(done.stdout.rsplit("@@", 1)[1])
    return found


def with_schedule(name: str, *settings: str, steps: int = 100, **params: Any) -> PlanWithOrigins:
    block = json.dumps({"type": name, "params": params})
    return planned("local", "z3", model="llama2-7b", steps=steps, set=(f"deepspeed.scheduler={block}", *settings))


WARMUP: dict[str, Any] = {"warmup_num_steps": 10}
DECAY: dict[str, Any] = {**WARMUP, "total_num_steps": 100}
CYCLE: dict[str, Any] = {"cycle_min_lr": 0.0, "cycle_first_step_size": 50}


def test_the_plans_rate_is_the_one_that_deepspeed_trains_with() -> None:
    said = "optimizer.lr=3e-5"
    plans = [
        with_schedule("WarmupLR", said, **WARMUP),
        with_schedule("WarmupLR", said, warmup_max_lr=None, **WARMUP),
        with_schedule("WarmupDecayLR", said, **DECAY),
        with_schedule("WarmupDecayLR", **DECAY),
        with_schedule("WarmupDecayLR", warmup_max_lr=4e-4, **DECAY),
        with_schedule("WarmupLR", warmup_max_lr=[4e-4], **WARMUP),
        with_schedule("WarmupLR", said, warmup_max_lr=3e-5, **WARMUP),
        with_schedule("WarmupCosineLR", said, **DECAY),
        with_schedule("OneCycle", cycle_max_lr=4e-4, **CYCLE),
    ]
    peaks = [one.plan.optimizer.lr for one in plans]
    assert peaks == [3e-5, 3e-5, 3e-5, 2e-5, 4e-4, 4e-4, 3e-5, 3e-5, 4e-4]
    assert [max(each) for each in rates(plans)] == pytest.approx(peaks, rel=0.01)
    assert plans[4].origins["optimizer"].endswith("lr: deepspeed.scheduler.params.warmup_max_lr")
    assert not any("deepspeed.scheduler:" in notice for one in plans for notice in one.notices)


def test_a_range_test_begins_with_the_plans_rate() -> None:
    plans = [with_schedule("LRRangeTest", "optimizer.lr=3e-5"), with_schedule("LRRangeTest", lr_range_test_min_lr=1e-6)]
    assert [each[0] for each in rates(plans)] == [one.plan.optimizer.lr for one in plans] == [3e-5, 1e-6]


@pytest.mark.parametrize(
    ("name", "params", "key"),
    [("WarmupLR", {"warmup_max_lr": 1e-3}, "warmup_max_lr"), ("OneCycle", {**CYCLE, "cycle_max_lr": 1e-3}, "cycle_max_lr")],
)  # fmt: skip
def test_two_learning_rates_are_refused(name: str, params: dict[str, Any], key: str) -> None:
    with pytest.raises(
        RequestError, match=rf"optimizer\.lr is 3e-05, and deepspeed\.scheduler\.params\.{key} is 0\.001"
    ):
        with_schedule(name, "optimizer.lr=3e-5", **params)


TOLD: list[tuple[str, dict[str, Any], str]] = [
    ("WarmupLR", {"warmup_num_steps": 500}, "warmup_num_steps is 500, and the run has 100 steps: the learning rate never reaches its peak"),
    ("WarmupLR", {}, "warmup_num_steps is 1000 by default, and the run has 100 steps"),
    ("WarmupDecayLR", {"total_num_steps": 50, **WARMUP}, "total_num_steps is 50, and the run has 100: the learning rate of the last 50 is 0"),
    ("WarmupCosineLR", {"total_num_steps": 50, **WARMUP}, "the learning rate of the last 50 is 0.0001 of its peak"),
    ("WarmupDecayLR", {"total_num_steps": 150, **WARMUP}, "it ends before the learning rate has fallen"),
    ("WarmupCosineLR", {"total_num_steps": 40, "warmup_num_steps": 60}, "warmup_num_steps is 60, and total_num_steps is 40: the learning rate falls to"),
    ("OneCycle", {**CYCLE, "cycle_max_lr": 1e-3, "cycle_first_step_size": 20}, "its cycle has 40 steps, and the run has 100: the learning rate of the last 60 is cycle_min_lr"),
    ("OneCycle", {"cycle_min_lr": 0.0, "cycle_max_lr": 1e-3}, "cycle_first_step_size is 2000 by default"),
]  # fmt: skip


def test_a_schedule_that_is_longer_or_shorter_than_the_run_is_told() -> None:
    plans = [with_schedule(name, **params) for name, params, _ in TOLD]
    for (_, _, said), found, each in zip(TOLD, plans, rates(plans), strict=True):
        [told] = [notice for notice in found.notices if notice.startswith("deepspeed.scheduler:")]
        assert said in told
        peak, highest, last = found.plan.optimizer.lr, max(each), each[-1]
        if "by default" in told or "never reaches" in told:
            assert highest < 0.9 * peak
        elif "has fallen" in told:
            assert 0.1 * peak < last < peak
        else:
            assert last <= 2e-4 * peak < highest


def test_the_number_that_a_refusal_asks_for_is_the_whole_run() -> None:
    with pytest.raises(
        RequestError, match=r"total_num_steps is missing, which WarmupDecayLR needs, as many as --steps\.$"
    ):
        with_schedule("WarmupDecayLR", **WARMUP)
    followed = with_schedule("WarmupDecayLR", total_num_steps=100, **WARMUP)
    [each] = rates([followed])
    assert each[-1] < 0.05 * max(each)


def test_what_the_trainer_would_fill_in_is_named() -> None:
    with pytest.raises(RequestError, match=r"warmup_max_lr is 'auto'.* Leave it out, optimizer\.lr is taken\."):
        with_schedule("WarmupLR", warmup_max_lr="auto", **WARMUP)
    with pytest.raises(RequestError, match=r"total_num_steps is 'auto'.* as many as --steps\."):
        with_schedule("WarmupDecayLR", total_num_steps="auto", **WARMUP)


def test_a_method_with_a_schedule_is_trained_by_the_engine_that_heeds_it() -> None:
    method = load_method("z3")
    block = {"type": "WarmupLR", "params": WARMUP}
    own = method.model_copy(update={"engine": ["fsdp2"], "deepspeed": {**method.deepspeed, "scheduler": block}})
    profile = cluster_of("delta")
    found = plan(Experiment(cluster="delta", method="z3", account="bbka-delta-gpu"), profile, own, site(profile))
    assert found.plan.engine.name == "deepspeed"
    assert any("deepspeed.scheduler is set, which only it heeds" in notice for notice in found.notices)
