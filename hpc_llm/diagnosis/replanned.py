"""A plan with changes, as planning would have made it: with the config of its method, and the engine and switches that go with both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.checkpoint import read_checkpoint
from hpc_llm.planning.draft import Draft
from hpc_llm.planning.engine_setup import choose_setup, wanted_of
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.gpu import choose_precision
from hpc_llm.planning.method import Method, load_method
from hpc_llm.planning.parts import EngineSetup
from hpc_llm.planning.settings import Settings
from hpc_llm.site.cluster import Cluster

_SWITCHES = [one.name for one in fields(EngineSetup) if isinstance(one.default, (bool, int, str))]
_ZERO = "zero_optimization"


def replanning(before: Plan, cluster: Cluster, method: Method | None = None) -> Callable[[Plan], Plan]:
    """What makes of a changed plan that which it is once it is asked for in words; what `before` has otherwise than its method
    and engine would is kept. It raises HpcLlmError where the plan cannot be planned. `method` is that of `before`.
    """
    old = method or load_method(before.method)
    usual = _usual(old, before, cluster)
    is_wished = usual is not None and usual.name != before.engine.name

    def again(changed: Plan) -> Plan:
        method = old if changed.method == before.method else load_method(changed.method)
        if method is not old:
            changed = _as_method_has(old, method, changed, cluster)
        config = before.engine.deepspeed if method is old else _config(old, method, before)
        if is_wished:
            method = method.model_copy(update={"engine": before.engine.name})
        setup = _setup(method, changed, config, cluster)
        own: dict[str, Any] = {}
        if usual is not None and setup.name == before.engine.name == usual.name:
            own = {n: v for n in _SWITCHES if (v := getattr(before.engine, n)) != getattr(usual, n)}
        return replace(changed, engine=replace(setup, **own))

    return again


def _as_method_has(old: Method, method: Method, plan: Plan, cluster: Cluster) -> Plan:
    """With the optimizer and the precision of a method that has others, unless the request had named its own."""
    had, has = ([one] if isinstance(one, str) else one for one in (old.optimizer.type, method.optimizer.type))
    named, gpu = plan.optimizer.type, cluster.gpu_of(cluster.partition(plan.job.partition))
    if named in had and named not in has:
        plan = replace(plan, optimizer=replace(plan.optimizer, type=has[-1]))
    if gpu.capabilities is None and gpu.vendor != "none":  # nobody knows it from here
        return plan
    usual, new = (choose_precision(one, gpu)[0] for one in (old, method))
    is_usual = plan.model.precision == usual and plan.model.quantization is None
    return replace(plan, model=replace(plan.model, precision=new)) if is_usual else plan


def _usual(method: Method, plan: Plan, cluster: Cluster) -> EngineSetup | None:
    """What the plan would have without any wish; None where that cannot be said."""
    try:
        return _setup(method, plan, plan.engine.deepspeed, cluster)
    except HpcLlmError:
        return None


def _config(old: Method, method: Method, before: Plan) -> dict[str, Any]:
    """The method's DeepSpeed config, with what the request has set within the other one's."""
    usual, has = old.deepspeed.get(_ZERO) or {}, before.engine.deepspeed.get(_ZERO) or {}
    own = {name: value for name, value in has.items() if name in usual and usual[name] != value and name != "stage"}
    return {**before.engine.deepspeed, _ZERO: {**(method.deepspeed.get(_ZERO) or {}), **own}}


def _setup(method: Method, plan: Plan, config: dict[str, Any], cluster: Cluster) -> EngineSetup:
    model, gpu = plan.model, cluster.gpu_of(cluster.partition(plan.job.partition))
    found = read_checkpoint(Path(model.name)) if Path(model.name).is_dir() else None
    wanted = wanted_of(model, plan.batch, plan.parallel, plan.optimizer, config, found, gpu)
    return choose_setup(method, wanted, Draft(Settings((), "")))
