"""Which change is the least costly one after which a run fits, by the estimate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hpc_llm.diagnosis.ladder import Rung, alternatives, kept_on_gpus, rungs
from hpc_llm.diagnosis.replanned import replanning
from hpc_llm.errors import HpcLlmError
from hpc_llm.estimating.largest import fewest_gpus, most_nodes
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Fit, Memory
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.estimating.step_time import step_time
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.method import letters_of
from hpc_llm.site.cluster import Cluster

_OPEN = "and nobody says how much it has"
_FELT = 1.05
"""A step that takes so many times as long is told."""
_NEAR = 1.5
"""Recomputing takes less, what goes by way of the host more."""


def _fits(memory: Memory) -> bool:
    return memory.verdict is Fit.FITS


def first_that_fits(plan: Plan, cluster: Cluster, suffices: Callable[[Memory], bool] = _fits) -> Rung | None:
    """The first of what trains the same, fits for certain and takes hardly longer a step than the quickest, or the first step of the
    ladder that fits.

    None where there is none, or nothing is known. Its plan is the one that its flags make. `suffices` is what may ask for more.
    """
    ways = (*alternatives(plan), *kept_on_gpus(plan))
    found = list(_fitting(plan, ways, cluster, suffices))
    if found:
        costs = [_cost(one, cluster) for one in found]
        is_open, least = min(costs)
        near = next(
            one for one, (is_so, cost) in zip(found, costs, strict=True) if is_so is is_open and cost <= _FELT * least
        )
        return _priced(plan, near, cluster)
    return next((_priced(plan, one, cluster) for one in _fitting(plan, rungs(plan), cluster, suffices)), None)


def on_more_gpus(plan: Plan, cluster: Cluster) -> Rung | None:
    """The plan, or else what trains the same, on the fewest GPUs on which it fits; None where no job there may have so many.

    What trains the same on fewer of them, in hardly more time, is told beside the first.
    """
    found = _on_more_gpus(plan, cluster)
    gpus, first = next(found, (0, None))
    if first is None:
        return None
    near = [(least, one) for least, one in found if least < gpus and _is_near(one.plan, first.plan, cluster)]
    if not near:
        return first
    least, other = min(near, key=lambda one: one[0])
    return replace(first, why=f"{first.why}; {other.flags} takes {least} GPUs in place of {gpus}")


def _is_near(plan: Plan, other: Plan, cluster: Cluster) -> bool:
    """Whether a step takes hardly longer: what moves all of it to the host saves nobody a charge."""
    after, before = seconds(plan, cluster), seconds(other, cluster)
    return bool(after and before and after <= _NEAR * before)


def _on_more_gpus(plan: Plan, cluster: Cluster) -> Iterator[tuple[int, Rung]]:
    """The plan and what trains the same, each with the fewest GPUs on which it fits."""
    again, there = replanning(plan, cluster), at_partition(cluster, plan)
    was, most = plan.parallel, most_nodes(cluster, plan)

    def ask(changed: Plan) -> Plan:
        with contextlib.suppress(HpcLlmError):
            return again(changed)
        return changed

    for step in (Rung("", "", plan), *alternatives(plan)) if was.gpus_per_node else ():
        changed = ask(step.plan)
        gpus = fewest_gpus(changed, there, sizes_in(changed), most, ask)
        if gpus is not None and gpus > was.world_size:
            nodes = max(1, gpus // there.gpu.per_node)
            flags = [
                f"--nodes {nodes}" if nodes != was.nodes else "",
                f"--gpus-per-node {gpus // nodes}" if gpus // nodes != was.gpus_per_node else "",
                step.flags,
            ]
            larger = plan.batch.global_batch_size * gpus // was.world_size
            why = f"more GPUs share the model, and the global batch is {larger}"
            besides = step.why.replace(f" at the same global batch of {plan.batch.global_batch_size}", "")
            besides = besides.replace(f" over {was.world_size} ranks", f" over {gpus} ranks")
            yield gpus, Rung(" ".join(filter(None, flags)), ", ".join(filter(None, (why, besides))), changed)


def _cost(step: Rung, cluster: Cluster) -> tuple[bool, float]:
    """What moves to a host of which nobody knows the memory comes last, the others by their time."""
    return _OPEN in step.why, seconds(step.plan, cluster) or 0.0


def _fitting(plan: Plan, steps: Iterable[Rung], cluster: Cluster, suffices: Callable[[Memory], bool]) -> Iterator[Rung]:
    again = replanning(plan, cluster)
    for step in steps:
        with contextlib.suppress(HpcLlmError):  # what cannot be planned is no way
            made = again(step.plan)
            memory = memory_of(made, at_partition(cluster, made), sizes_in(made))
            if suffices(memory):
                yield replace(step, plan=made, why=f"{step.why}{_doubt(made, memory)}")


def _doubt(plan: Plan, memory: Memory) -> str:
    """That what moves to the host has to fit there, where nobody says how much there is."""
    if memory.host.capacity is not None or "o" not in letters_of(plan).split("+"):
        return ""
    return f" - up to {-(-memory.host.high // 2**30)} GiB of a node, {_OPEN}"


def seconds(plan: Plan, cluster: Cluster) -> float | None:
    """Of a step by the estimate."""
    found = step_time(plan, cluster)
    return None if found is None else found.step_time_s


def _priced(plan: Plan, step: Rung, cluster: Cluster) -> Rung:
    """With what it costs, where that is felt."""
    before, after = seconds(plan, cluster), seconds(step.plan, cluster)
    if (
        not before
        or not after
        or after < _FELT * before
        or step.plan.batch.sequence_length != plan.batch.sequence_length
    ):
        return step
    return replace(step, why=f"{step.why}; {after / before:.1f} times the step time by the estimate")
