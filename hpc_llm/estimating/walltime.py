"""How long a run takes from its first line to its last, what it costs, and the time limit to ask for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpc_llm.estimating.time_work import Work
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.profilers import KERNELS
from hpc_llm.planning.room import room_of
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.slurm_time import LONGEST_S

_START_S = 20.0
"""Python, torch and transformers, from a local disk; measured, as the following two are."""
_SPLIT_S_EACH = 2.5e-9
"""To build a number that ZeRO-3 or FSDP2 splits."""
_OFFLOAD_S, _OFFLOAD_S_EACH = 15.0, 12e-9
"""To compile the host's optimizer, and to take page-locked memory for one number of a rank."""
_FILE_SYSTEM = 1e9
"""Bytes per second of a shared file system, for one node: no measurement, an order of magnitude."""
_LATE = 4.0
"""By how much longer a start takes where hundreds of files are read from a busy file system."""
_COMPILE_S = 120.0
"""DeepSpeed compiles its operators at first, and a graph or a kernel is chosen in the first steps."""

_PROFILED = 4
"""Steps that are looked into, with those in which the profiler sets itself up."""
_TRACE_S = 10.0
"""To write down what a few profiled steps did."""
_REPLAYED_S = 0.9
"""To run one kernel again for every group of counters: 0.8 to 0.9 s for ten passes, whatever the model's size, were measured on one H100."""

SHORTEST_S, UNIT_S = 600, 300
MARGIN = 1.25
"""Beyond the upper end of the interval. A run that is cut off has cost its queue time; a longer limit costs a place in it."""


@dataclass(frozen=True)
class Span:
    """A figure with the interval that nine of ten runs should fall into."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, factor: float) -> Span:
        """An interval of so many times more and less."""
        return cls(value, value / factor, value * factor)

    def __add__(self, other: Span) -> Span:
        return Span(self.value + other.value, self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Cost:
    """An amount, in the unit that the site counts in: SU, USD."""

    amount: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class RunTime:
    """Seconds of the whole run."""

    first_step: Span
    """From the start of the job to the first step."""
    whole: Span
    """To the end of the job, checkpoints included."""
    gpu_hours: float
    cost: Cost | None
    """What the site charges for them; None where the profile does not say."""
    proposed_s: int
    """The time limit to ask for, where nobody has said one."""
    is_over_limit: bool
    """Whether the site allows less than that."""


def run_time(plan: Plan, work: Work, step: Span, cluster: Cluster) -> RunTime:
    """The run of a plan whose steps take so long."""
    first = first_step(plan, work)
    saving = _saving_s(plan)
    steps = plan.training.steps
    whole = Span(
        first.value + steps * step.value + saving,
        first.low + steps * step.low + saving / 3,
        first.high + steps * step.high + saving * 3,
    )
    return lasting(plan, first, whole + _profiling(plan, step), cluster)


def lasting(plan: Plan, first: Span, whole: Span, cluster: Cluster) -> RunTime:
    """What follows from how long the plan's job lasts."""
    hours = whole.value * plan.parallel.nodes * plan.parallel.gpus_per_node / 3600
    charge = cluster.charge_of(cluster.partition(plan.job.partition))
    proposed = proposal(whole.high)
    most = _limit_s(plan, cluster)
    return RunTime(
        first_step=first,
        whole=whole,
        gpu_hours=hours,
        cost=None if charge is None else Cost(hours * charge.per_gpu_hour, charge.unit),
        proposed_s=min(proposed, most),
        is_over_limit=proposed > most,
    )


def proposal(longest_s: float) -> int:
    """The time limit for a run of at most so many seconds: a margin above it, at least ten minutes, in steps of five.

    >>> proposal(3600)
    4500
    """
    return max(SHORTEST_S, math.ceil(longest_s * MARGIN / UNIT_S) * UNIT_S)


def first_step(plan: Plan, work: Work) -> Span:
    """From the start of the job to its first step."""
    seconds = _START_S
    if work.stage == 3:
        seconds += _SPLIT_S_EACH * work.parameters
    if work.offloads_optimizer:
        seconds += _OFFLOAD_S + _OFFLOAD_S_EACH * work.trained_here
    if plan.model.weights == "checkpoint":
        seconds += work.width * work.parameters / _FILE_SYSTEM
    return Span(seconds, seconds / 2, seconds * _LATE + _COMPILE_S)


def _profiling(plan: Plan, step: Span) -> Span:
    """What is looked into once the measured steps are over. How long that takes depends on how much there is to write down."""
    name = plan.training.profile
    if name is None:
        return Span(0.0, 0.0, 0.0)
    if name == "ncu":
        seconds = _REPLAYED_S * (plan.training.profile_kernels or KERNELS)
        return Span(seconds, seconds / 10, seconds * 2)  # a short step has fewer kernels
    return Span(2 * _PROFILED * step.value + _TRACE_S, _PROFILED * step.low, 4 * _PROFILED * step.high + 10 * _TRACE_S)


def _saving_s(plan: Plan) -> float:
    """All checkpoints; they are written while the steps wait."""
    room, every = room_of(plan), plan.training.save_every
    if room is None or not every:
        return 0.0
    return (math.ceil(plan.training.steps / every) * room.checkpoint + room.model) / _FILE_SYSTEM


def _limit_s(plan: Plan, cluster: Cluster) -> int:
    """The longest that partition and QOS allow, as far as the profile says."""
    partition = cluster.partition(plan.job.partition)
    name = plan.job.sbatch.get("qos") or cluster.extra_options.get("qos")
    qos = cluster.qos_named(name) if name else cluster.default_qos(partition)
    lifted = qos is not None and "time" in (qos.lifts or ())
    limits = [
        LONGEST_S,
        None if partition is None or lifted else partition.max_time_s,
        qos.max_time_s if qos else None,
    ]
    return min(limit for limit in limits if limit is not None)
