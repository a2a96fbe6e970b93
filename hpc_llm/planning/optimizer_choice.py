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


_HIGHEST_RATE = 0.1
"""With Adam each weight moves by about the rate in a step, and weights are smaller than that."""


def odd_rate(lr: float) -> list[str]:
    """What is to be told of a learning rate at which no model is trained with Adam.

    >>> odd_rate(1e-5), odd_rate(1e5)[0][:26], odd_rate(0.0)
    ([], 'optimizer.lr is 100000: wi', ['optimizer.lr is 0: no weight moves, and nothing is learned'])
    """
    if not lr:
        return ["optimizer.lr is 0: no weight moves, and nothing is learned"]
    if lr < _HIGHEST_RATE:
        return []
    return [
        f"optimizer.lr is {lr:g}: with Adam each weight moves by about as much in each step, and the loss runs away; usual are 1e-6 to 1e-2"
    ]
