"""Which engine a plan gets, what it refuses, and what makes it another one."""

from __future__ import annotations

from typing import Any

import pytest
from rendering import METHODS, planned

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan


def choice(method: str, *settings: str, **asked: Any) -> tuple[Plan, tuple[str, ...]]:
    found = planned("delta", method, set=settings, **asked)
    return found.plan, found.notices


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_an_engine_that_can_do_it(method: str) -> None:
    plan, _ = choice(method)
    assert plan.engine.name in engines.OWN and plan.engine.module is None
    assert (plan.engine.fallback is None) == (plan.engine.name == "deepspeed")


def test_the_methods_of_the_homework_stay_deepspeed() -> None:
    assert {choice(method)[0].engine.name for method in METHODS if method.endswith("-hpc2")} == {"deepspeed"}


@pytest.mark.parametrize(
    ("engine", "method"),
    [("plain", "ddp"), ("plain", "q"), ("plain", "lora"), ("fsdp2", "z3"), ("fsdp2", "z3+l"), ("fsdp2", "z3+qlora")],
)
def test_an_engine_can_be_asked_for(engine: str, method: str) -> None:
    plan, notices = choice(method, f"engine={engine}")
    assert (plan.engine.name, plan.engine.fallback, notices) == (engine, "deepspeed", ())


@pytest.mark.parametrize(
    ("engine", "method", "said"),
    [
        ("plain", "z3", "engine plain holds the whole model on each rank, and cannot split it. Engines that can: deepspeed, fsdp2."),
        ("plain", "z2o", "Engines that can: deepspeed."),
        ("fsdp2", "z2", "splits the parameters among all ranks, as ZeRO-3 does, and nothing less. Engines that can: deepspeed."),
        ("fsdp2", "ddp", "Engines that can: deepspeed, plain."),
        ("fsdp2", "z3o", "cannot offload"),
        ("fsdp2", "int8", "splits no weights of 8 bits. Engines that can: deepspeed."),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_do_is_refused_with_those_that_can(engine: str, method: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        bits = ("quantization.kind=int8",) if method == "int8" else ()
        choice("z3+qlora" if bits else method, f"engine={engine}", *bits)
    assert said in str(caught.value)


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"engine 'megatron'.*deepspeed, fsdp2, plain"):
        choice("z3", "engine=megatron")


@pytest.mark.parametrize(
    "setting", ["deepspeed.zero_optimization.overlap_comm=false", "deepspeed.communication_data_type=fp32"]
)
def test_a_setting_that_only_deepspeed_heeds_selects_it_and_says_so(setting: str) -> None:
    plan, notices = choice("z3", "engine=fsdp2", setting)
    assert plan.engine.name == "deepspeed"
    path = setting.partition("=")[0]
    assert f"engine fsdp2 becomes deepspeed: {path} is set, which only it heeds" in notices


def test_a_setting_that_all_heed_selects_nothing() -> None:
    plan, notices = choice("z3", "engine=fsdp2", "deepspeed.gradient_clipping=0.5")
    assert (plan.engine.name, notices) == ("fsdp2", ())


@pytest.mark.parametrize(
    ("method", "settings", "recorded", "why"),
    [
        ("lora", ("engine=plain",), True, "whose steps have one shape"),
        ("q", ("engine=plain",), True, "whose steps have one shape"),
        ("q", ("engine=plain", "quantization.kind=int8"), False, "int8 layers were not compared"),
        ("lora", ("engine=plain", "cuda_graph=false"), False, "set"),
        ("lora", ("engine=deepspeed",), False, "it records no steps"),
        ("z3", ("engine=fsdp2",), False, "it records no steps"),
    ],
)
def test_the_plan_says_whether_steps_are_recorded_and_why(
    method: str, settings: tuple[str, ...], recorded: bool, why: str
) -> None:
    found = planned("delta", method, set=settings)
    assert found.plan.engine.cuda_graph is recorded
    assert why in found.origins["cuda_graph"] or why == found.origins["cuda_graph"]


def test_without_a_gpu_nothing_is_recorded() -> None:
    found = planned("local", "lora", hardware=None, set=("engine=plain",))
    assert not found.plan.engine.cuda_graph


@pytest.mark.parametrize("settings", [("engine=deepspeed",), ("engine=plain", "quantization.kind=int8")])
def test_to_record_what_cannot_be_recorded_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match="cuda_graph=true: with engine"):
        choice("q", *settings, "cuda_graph=true")
