"""Whether what is to be submitted fits, before it is queued, and how much of a node's memory it should ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError, RequestError, notice
from hpc_llm.text.sizes import gib_apart

if TYPE_CHECKING:
    from hpc_llm.estimating.parts import Memory, Need
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import Plan, PlanWithOrigins
    from hpc_llm.site.cluster import Cluster

_GIB = 2**30
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
"""Options that ask for memory."""
_LEAST = 4 * _GIB
"""Nobody is asked for less of a node's memory."""
_NEVER_LACKING = 100 * _GIB
"""A node with GPUs that has less memory is rare."""
_OF_MEMORY = ("OOM_DEVICE", "OOM_HOST")
"""Outcomes that a study may expect of a run which does not fit."""


def check_fit(batches: Sequence[Batch], *, force: bool = False) -> None:
    """Refuse what cannot fit, however one reckons, and tell of what may not.

    Raises:
        PlanError: not even the least that a run needs is there; with `force` that is told.
    """
    from hpc_llm.api.predicting import tell_times
    from hpc_llm.api.searching import least_of

    told: dict[str, None] = {}
    for batch in batches:
        cluster = with_its_scheduler(as_it_is_here(batch.cluster), batch.planned[0].plan)
        for planned in batch.planned:
            if planned.study is not None and planned.study.expect in _OF_MEMORY:
                continue
            plan = least_of(as_asked(planned))
            if planned.plan.job.mem is None:  # else the scheduler says whether a node has as much
                told |= dict.fromkeys(_unjudged(plan, cluster))
            for sentence, is_certain in _objections(plan, cluster):
                if is_certain and not force:
                    raise PlanError(f"{sentence}. --force submits all the same.")
                told[f"--force, although {sentence}" if is_certain else sentence] = None
    for sentence in told:
        notice(sentence)
    tell_times(batches)


_ESTIMATED = "estimated: "


def as_asked(planned: PlanWithOrigins) -> Plan:
    """The plan without the memory that only its own estimate asks for: what is there is no less than a site has for that."""
    plan = planned.plan
    if not str(planned.origins.get("mem", "")).startswith(_ESTIMATED):
        return plan
    return replace(plan, job=replace(plan.job, mem=None))


def memory_there(plan: Plan, cluster: Cluster) -> Memory | None:
    """What the plan needs on the cluster; None where it trains nothing, or its shape cannot be seen from here."""
    from hpc_llm.estimating.memory import at_partition, memory_of
    from hpc_llm.estimating.shapes import sizes_in
    from hpc_llm.planning.tasks import find

    if not find(plan.task).trains:
        return None
    try:
        return memory_of(plan, at_partition(cluster, plan), sizes_in(plan))
    except RequestError:
        return None


def as_it_is_here(cluster: Cluster) -> Cluster:
    """The cluster, with this machine's GPU where its profile leaves that open."""
    from hpc_llm.api.estimating import as_it_is
    from hpc_llm.site.hardware import detect

    return as_it_is(cluster, detect()) if cluster.gpu.vendor == "auto" else cluster


def with_its_scheduler(cluster: Cluster, plan: Plan) -> Cluster:
    """The cluster, with what its scheduler says of the memory of the plan's nodes where the profile does not say it."""
    from hpc_llm.schedulers.scheduler import find

    partition = cluster.partition(plan.job.partition)
    node, scheduler = cluster.node_of(partition), find(plan.job.scheduler)
    size = scheduler.node_bytes(plan, cluster) if node.mem_gb is None and scheduler.is_here() else None
    if size is None:
        return cluster
    node = node.model_copy(update={"mem_gb": size / 1e9})
    if partition is None:
        return cluster.model_copy(update={"node": node})
    own = [one.model_copy(update={"node": node}) if one is partition else one for one in cluster.partitions]
    return cluster.model_copy(update={"partitions": own})


def _unjudged(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """A sentence where nobody says what memory a node has, and not every node has what the plan needs."""
    from hpc_llm.site.profiles import where_to_change

    memory = memory_there(plan, cluster)
    if memory is None or memory.host.capacity is not None or memory.host.of_node is not None:
        return
    need = memory.host
    if need.high > (_NEVER_LACKING if memory.device else _LEAST):
        yield (
            f"{_needs(plan)} {gib(need.low)} to {gib(need.high)} of a node's memory, and whether a node has as much cannot be judged: "
            f"write node.mem_gb, the GB that a job may use of one, into {where_to_change('clusters', cluster.name)}"
        )


def _objections(plan: Plan, cluster: Cluster) -> Iterator[tuple[str, bool]]:
    """Sentences about what is short, without their full stop, and whether that is certain."""
    from hpc_llm.estimating.parts import Fit

    memory = memory_there(plan, cluster)
    if memory is None:
        return
    places: list[tuple[str, Need]] = [("a node's memory", memory.host)]
    if memory.device:
        places.insert(0, (f"a GPU ({plan.gpu.model})", memory.device))
    for place, need in places:
        if need.verdict is Fit.DOES_NOT_FIT:
            low, there = gib(need.low), gib(need.capacity)
            if low == there and need.capacity is not None:
                low, there = gib_apart(need.low, need.capacity)
            yield (
                f"{_needs(plan)} at least {low} of {place}, which has {there}{_way(plan, cluster, need)}",
                True,
            )
        elif need.verdict is Fit.TOO_CLOSE:
            least, there = need.capacity_low, gib(need.capacity)
            if least is not None and least < (need.capacity or 0):
                there += f", of which no more than {gib(least)} may be free"
            yield (
                f"{_needs(plan)} {gib(need.low)} to {gib(need.high)} of {place}, which has {there}: too close to call",
                False,
            )


def _needs(plan: Plan) -> str:
    shape = f"{plan.batch.micro_batch_size} x {plan.batch.sequence_length}"
    name = plan.model.name.rstrip("/").rsplit("/", 1)[-1]
    return f"cluster {plan.cluster}: {name} with {plan.method}, {shape}, needs"


def gib(size: int | None) -> str:
    """In GiB, rounded."""
    return (
        "an unknown amount"
        if size is None
        else f"{size / _GIB:.0f} GiB"
        if size >= 10 * _GIB
        else f"{size / _GIB:.1f} GiB"
        if size >= _GIB
        else f"{size / 2**20:.0f} MiB"
    )


def _way(plan: Plan, cluster: Cluster, need: Need) -> str:
    """What would fit, as the end of a sentence."""
    from hpc_llm.diagnosis.suffices import first_that_fits, on_more_gpus
    from hpc_llm.estimating.memory import at_partition
    from hpc_llm.estimating.parts import Device
    from hpc_llm.site.schedulers import scheduler_of

    node = at_partition(cluster, plan).node.mem_gb
    enough = -(-need.enough // _GIB)
    can_ask = "sbatch" in scheduler_of(plan.job.scheduler).requests
    has_more = can_ask and node is not None and enough * _GIB <= node * 1e9
    asked = next((f"--sbatch {name}={plan.job.sbatch[name]}" for name in _MEMORY if name in plan.job.sbatch), None)
    if not isinstance(need, Device) and has_more and asked is not None:
        return f". A node has {node:g} GB, and {asked} asks for less: leave it out, or take --sbatch mem={enough}G"
    if not isinstance(need, Device) and has_more and cluster.request.memory != "omit":
        return f". A node has {node:g} GB: ask for enough with --sbatch mem={enough}G"
    step = first_that_fits(plan, cluster) or on_more_gpus(plan, cluster)
    return "" if step is None else f". The first step that fits: {step.flags} ({step.why})"


def with_memory(planned: PlanWithOrigins, cluster: Cluster) -> PlanWithOrigins:
    """The plan with what its host holds as the memory to ask for, where the site wants to be asked and nothing else says how much."""
    from hpc_llm.site.schedulers import scheduler_of

    plan, style = planned.plan, cluster.request.memory
    is_here = scheduler_of(plan.job.scheduler).is_this_machine
    said = {*_MEMORY} & {*plan.job.sbatch, *cluster.extra_options}
    if style == "omit" or plan.job.mem is not None or said or is_here:
        return planned
    from hpc_llm.estimating.host import parts_of_request
    from hpc_llm.estimating.memory import at_partition

    parts = parts_of_request(plan, style)
    memory = memory_there(plan, cluster)
    node = at_partition(cluster, plan).node.mem_gb
    if memory is None or not parts:
        return planned
    size = max(memory.host.high, _LEAST)
    if node is not None and size > node * 1e9:
        return planned
    job = replace(plan.job, mem=f"{-(-size // parts // 2**20)}M")
    origins = {
        **planned.origins,
        "mem": f"{_ESTIMATED}the most that the host holds; nothing else says how much to ask for",
    }
    return replace(planned, plan=replace(plan, job=job), origins=origins)
