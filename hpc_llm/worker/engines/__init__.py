"""Engines: what carries out a training step. One module each; the plan names one, and one to fall back to."""

from __future__ import annotations

from importlib import import_module

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.outside import reason_of
from hpc_llm.planning.engines import OWN
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd

__all__ = ["Built", "Engine", "EngineKind", "StepEnd", "choose", "find"]


def find(name: str, module: str | None = None) -> EngineKind:
    """The engine of that name: one of ours, or what `module` defines, which has travelled or is installed here."""
    if module is not None:
        return _from_elsewhere(name, module)
    if name not in OWN:
        raise WorkerError(unknown_name("engine", name, OWN))
    kind: EngineKind = import_module(f"{__name__}.{name}").KIND
    return kind


def _from_elsewhere(name: str, module: str) -> EngineKind:
    try:
        found = import_module(module)
        kind = found.KIND if hasattr(found, "KIND") else found.kind()
    except Exception as error:  # whatever a module that is not ours may raise
        raise WorkerError(f"the engine {name} of {module} cannot be used: {reason_of(error)}.") from error
    if not isinstance(kind, EngineKind) or kind.name != name:
        raise WorkerError(f"the engine {name} of {module} cannot be used: its KIND is no EngineKind of that name.")
    return kind


def choose(plan: Plan) -> tuple[EngineKind, list[str]]:
    """The plan's engine, or its fallback where this node cannot run it, and a sentence then."""
    wanted = find(plan.engine.name, plan.engine.module)
    lack = wanted.missing()
    if lack is None:
        return wanted, []
    if plan.engine.fallback is None:
        raise WorkerError(f"the engine {wanted.name} cannot run on this node: {lack}.")
    other = find(plan.engine.fallback)
    also = other.missing()
    if also is not None:
        raise WorkerError(f"neither the engine {wanted.name} nor {other.name} can run on this node: {lack}; {also}.")
    return other, [
        f"The engine {other.name} runs in place of {wanted.name}, for {lack}: the speed is not the method's."
    ]
