"""Which optimizer a plan takes of those that its method names."""

from __future__ import annotations

import pytest
from rendering import planned

from hpc_llm.planning.method import load_method
from hpc_llm.site.hardware import Hardware


@pytest.mark.parametrize(
    ("cluster", "method", "settings", "optimizer", "why"),
    [
        ("p4d", "q", (), "AdamWBF16", ""),
        ("delta", "q+r", (), "AdamWBF16", ""),
        ("p4d", "q", ("optimizer.lr=1e-3",), "AdamWBF16", ""),
        ("p4d", "q", ("optimizer.type=AdamW8bit",), "AdamW8bit", ""),
        ("p4d", "q", ("precision=fp16",), "AdamW8bit", "the precision is fp16"),
        ("taiwania2", "q", (), "AdamW8bit", "the precision is fp16"),
        ("mi210", "q", (), "AdamW8bit", "NVIDIA's GPUs alone"),
        ("p4d", "q+lora", (), "AdamW8bit", "not measured with adapters"),
        ("p4d", "q", ("engine=deepspeed",), "AdamW8bit", "this is deepspeed"),
        ("p4d", "q", ("deepspeed.zero_optimization.stage=2",), "AdamW8bit", "this is deepspeed"),
    ],
)
def test_the_first_that_suits(cluster: str, method: str, settings: tuple[str, ...], optimizer: str, why: str) -> None:
    found = planned(cluster, method, set=settings)
    assert found.plan.optimizer.type == optimizer and why in found.origins["optimizer"]
    is_left_out = optimizer != "AdamWBF16" and not any(one.startswith("optimizer.type") for one in settings)
    assert ("AdamWBF16" in found.origins["optimizer"]) == is_left_out


def test_without_a_gpu_nothing_is_compiled() -> None:
    assert planned("local", "q").plan.optimizer.type == "AdamWBF16"
    assert planned("local", "q", hardware=Hardware(cpus=2)).plan.optimizer.type == "AdamW8bit"


def test_deepspeed_is_no_fallback_where_it_could_not_do_the_same() -> None:
    assert planned("p4d", "q").plan.engine.fallback is None
    assert planned("p4d", "q", set=("optimizer.type=AdamW8bit",)).plan.engine.fallback == "deepspeed"
    assert load_method("q").engine == "plain"
