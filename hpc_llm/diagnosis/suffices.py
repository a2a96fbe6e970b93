"""Which step of the ladder is the first after which a run fits, by the estimate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from hpc_llm.diagnosis.ladder import Rung
from hpc_llm.errors import HpcLlmError
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Verdict
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.planning import engines
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import load_method
from hpc_llm.planning.parts import EngineSetup
from hpc_llm.site.cluster import Cluster

_NO_SWITCHES = {one.name: one.default for one in fields(EngineSetup) if isinstance(one.default, (bool, int, str))}
"""How an engine is that was asked for nothing: what one chooses for itself, another need not know."""


def first_that_fits(plan: Plan, steps: Iterable[Rung], cluster: Cluster) -> Rung | None:
    """The first of the steps down from `plan` that fits for certain on the cluster; None where there is none, or nothing is known."""
    try:
        there, sizes = at_partition(cluster, plan), sizes_in(plan)
        for step in steps:
            if memory_of(_as_planned(step.plan, plan), there, sizes).verdict is Verdict.FITS:
                return step
    except HpcLlmError:
        return None
    return None


def _as_planned(changed: Plan, before: Plan) -> Plan:
    """With the DeepSpeed config that goes with its method, which a step names alone. Raises as `load_method`."""
    if changed.method == before.method:
        return changed
    method = load_method(changed.method)
    splits = bool(method.zero_stage)
    engine = changed.engine.name
    if splits and engine in engines.OWN and (engine == "plain" or "o" in method.letters.split("+")):
        engine = "deepspeed"
    config = {**changed.engine.deepspeed, "zero_optimization": method.deepspeed.get("zero_optimization", {})}
    own = {} if engine == changed.engine.name else _NO_SWITCHES
    return changed.changed(**(own | {"deepspeed": config, "engine": engine}))
