"""What a run that failed holds by the estimate, and what one with changes would: whether it needs clearly less of what ran out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hpc_llm.diagnosis.case import Case, size_bytes
from hpc_llm.diagnosis.host_memory import FORMS, MARGIN, flag
from hpc_llm.diagnosis.replanned import replanning
from hpc_llm.errors import HpcLlmError
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Fit, Memory, Need, worst
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster

_CLEARLY = 0.9
"""An upper bound that is not below this part of another one says nothing: estimates are no surer than that."""


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """A changed plan, and what its run holds."""

    plan: Plan
    memory: Memory
    option: str = ""
    """What has to be asked for besides, so that the node's memory is enough: with a space before it."""


@dataclass(frozen=True, kw_only=True)
class Scales:
    """What the run that failed holds, and how its changed plans are weighed."""

    case: Case
    cluster: Cluster
    before: Memory
    again: Callable[[Plan], Plan]

    def weigh(self, plan: Plan, option: str | None = None) -> Weighed | None:
        """The plan as planning would make it; None where it cannot be planned.

        `option` is that of sbatch which is advised along; with None the one that it takes is found.
        """
        try:
            made = self.again(with_option(plan, option, self.cluster) if option else plan)
        except HpcLlmError:
            return None
        memory = memory_of(made, at_partition(self.cluster, made), sizes_in(made))
        room = self._option(made, memory.host) if option is None else ""
        if room:
            return self.weigh(plan, room)
        return Weighed(plan=made, memory=memory, option=f" {option}" if option else "")

    def _option(self, plan: Plan, host: Need) -> str:
        """The option by which the job gets as much of a node as may be needed, where it had less and the node has it."""
        had, there = self.case.host_memory, self.case.node_bytes
        if host.verdict in (Fit.FITS, Fit.UNKNOWN) or not self.case.may_ask_memory:
            return ""
        if there is None or host.low >= there or had.on_node(plan) == 0:
            return ""
        return flag(had, plan, host.high * MARGIN, there)

    def on_device(self, memory: Memory) -> Fit:
        """Whether it fits the GPU, of which the message may have said how large it is."""
        device, facts = memory.device, self.case.facts
        if device is None:
            return Fit.FITS
        told = size_bytes(facts.get("capacity") or facts.get("capacity_old"))
        if told is None:
            return device.verdict
        sizes = [size for size in (device.capacity, device.capacity_low) if size]
        return replace(device, capacity=int(min([told, *sizes[:1]])), capacity_low=int(min([told, *sizes]))).verdict

    def fits(self, memory: Memory) -> Fit:
        """Whether it fits both GPU and node; where nobody says what a node has it is the GPU that counts."""
        host = memory.host.verdict
        return self.on_device(memory) if host is Fit.UNKNOWN else worst([self.on_device(memory), host])

    def is_less_on_device(self, memory: Memory) -> bool:
        before, after = self.before.device, memory.device
        return before is not None and after is not None and after.high < _CLEARLY * before.high

    def is_less_on_host(self, memory: Memory) -> bool:
        """Whether clearly less of what a node has for the job is needed: there may be more of that, or less, than before."""
        before, after = self.before.host, memory.host
        if before.capacity is None or after.capacity is None:
            return before.capacity is after.capacity and after.high < _CLEARLY * before.high
        return after.high * before.capacity < _CLEARLY * before.high * after.capacity


def scales_of(case: Case) -> Scales | None:
    """None where nothing can be weighed: the profile or the method is not here any more, or nobody knows the model."""
    plan, cluster = case.plan, case.cluster
    if cluster is None:
        return None
    try:
        if not tasks.find(plan.task).trains:
            return None
        before = memory_of(plan, at_partition(cluster, plan), sizes_in(plan))
        return Scales(case=case, cluster=cluster, before=before, again=replanning(plan, cluster))
    except HpcLlmError:
        return None


def with_option(plan: Plan, option: str, cluster: Cluster) -> Plan:
    """The plan with `--sbatch NAME=SIZE` of memory instead of what it asked for."""
    name, _, size = option.removeprefix("--sbatch ").partition("=")
    others = {key: value for key, value in plan.job.sbatch.items() if key not in FORMS}
    mem = size if name == cluster.request.memory else None
    return replace(plan, job=replace(plan.job, sbatch={**others, name: size}, mem=mem))


def bounds(need: Need) -> str:
    """How much it is by the estimate, in words: from the least to the most, of what there is."""
    there = "" if need.capacity is None else f" of the {need.capacity / 2**30:.1f}"
    return f"{need.low / 2**30:.1f} to {need.high / 2**30:.1f}{there} GiB"


def gib(size: float) -> str:
    """
    >>> gib(3 << 29)
    '1.5 GiB'
    """
    return f"{size / 2**30:.1f} GiB"
