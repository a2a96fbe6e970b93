"""What a run holds in the memory of one GPU, and whether it is there."""

from __future__ import annotations

from hpc_llm.estimating import deepspeed, fsdp2, plain
from hpc_llm.estimating.activations import activations_of
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.constants import constants
from hpc_llm.estimating.parts import Device, Moment
from hpc_llm.site.cluster import Gpu

_ENGINES = {"deepspeed": deepspeed.moments, "plain": plain.moments, "fsdp2": fsdp2.moments}
_GIB = 2**30


def device_need(case: Case, gpu: Gpu, unknown: float) -> Device:
    """`unknown` is by how much the interval is wider than for runs like those that were measured: 0.2 is a fifth."""
    peak = peak_moment(case)
    known = constants()
    outside = _outside(case)
    capacity = int((gpu.memory_gib or 0) * _GIB) or None
    least, most = known.device_capacity
    return Device(
        breakdown=peak.terms,
        moment=peak.name,
        peak=peak.total,
        outside=outside,
        low=int(peak.total * (known.peak[0] - unknown)) + outside,
        high=int(peak.total * (known.peak[1] + unknown)) + outside,
        capacity=capacity and int(capacity * most),
        capacity_low=capacity and int(capacity * least),
    )


def peak_moment(case: Case) -> Moment:
    """The moment of a step at which the most is held; terms of nothing are left out."""
    engine = _ENGINES.get(case.plan.engine.name, deepspeed.moments)
    found = max(engine(case, activations_of(case)), key=lambda one: one.total)
    terms = {name: size for name, size in found.terms.items() if size}
    return Moment(name=found.name, terms={**terms, "workspaces": constants().extra})


def _outside(case: Case) -> int:
    """Context, libraries and collectives."""
    return int((1.3 + (0.5 if case.ranks > 1 else 0)) * _GIB)


def is_measured(case: Case) -> bool:
    """Whether the engine's terms are known."""
    return case.plan.engine.name in _ENGINES
