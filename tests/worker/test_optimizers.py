"""Each optimizer that a method can name is planned, handed to DeepSpeed and trains."""

from __future__ import annotations

import pytest
from rendering import planned
from tiny_plans import RunPlan, make_plan

from hpc_llm.planning.optimizers import NAMES, OF_DEEPSPEED, bitsandbytes_name

pytestmark = pytest.mark.train


@pytest.mark.parametrize("method", ["z2o", "z3"])
@pytest.mark.parametrize("name", NAMES)
def test_it_trains(name: str, method: str, run_plan: RunPlan) -> None:
    values = {"type": name, "lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
    result = run_plan(make_plan(method, optimizer=values))
    assert result["outcome"] == "COMPLETED", result["outcome_reason"]
    assert result["loss_last"] < result["loss_first"] - 0.2


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_planned_and_deepspeed_gets_its_own_alone(name: str) -> None:
    plan = planned("delta", "z3", set=(f"optimizer.type={name}",)).plan
    assert plan.optimizer.type == name
    assert ("optimizer" in plan.engine.deepspeed) == (name in OF_DEEPSPEED)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_DEEPSPEED])
def test_bitsandbytes_has_it(name: str) -> None:
    import bitsandbytes

    assert issubclass(getattr(bitsandbytes.optim, name), bitsandbytes.optim.optimizer.Optimizer8bit)
    assert bitsandbytes_name(name.lower()) == name
