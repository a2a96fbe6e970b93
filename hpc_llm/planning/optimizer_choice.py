"""Which optimizer a plan takes, where its method names several."""

from __future__ import annotations

from collections.abc import Sequence

from hpc_llm.planning.optimizers import PURE_BF16, OptimizerName
from hpc_llm.planning.parts import ModelSetup


def suited_optimizer(
    names: OptimizerName | Sequence[OptimizerName], model: ModelSetup, *, vendor: str, engine: str
) -> tuple[OptimizerName, list[str]]:
    """The optimizer of a method that names one or several, and why those before it are left out, each in a sentence."""
    passed: list[str] = []
    *before, last = [names] if isinstance(names, str) else names
    for name in before:
        lack = _lack(name, model, vendor, engine)
        if lack is None:
            return name, passed
        passed.append(f"{name} {lack}")
    return last, passed


def _lack(name: OptimizerName, model: ModelSetup, vendor: str, engine: str) -> str | None:
    """Why it is not taken unasked: what cannot be, and what nobody has measured."""
    if name not in PURE_BF16:
        return None
    if model.precision != "bf16":
        return f"keeps what trains in bf16, and the precision is {model.precision}"
    if engine != "plain":
        return f"is of engine plain alone, and this is {engine}"
    if model.peft is not None:
        return "was not measured with adapters"
    return None if vendor == "nvidia" else "is fast where it is compiled, which was measured on NVIDIA's GPUs alone"
