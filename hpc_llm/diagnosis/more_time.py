"""What to do about a run of ours whose time was over: more time, or fewer steps, by its own steps and by what ended it."""

from __future__ import annotations

import math
import re

from hpc_llm.diagnosis.case import Case, takes_options
from hpc_llm.planning.experiment import Plan
from hpc_llm.records.metrics import MIN_MEASURED_STEPS
from hpc_llm.site.slurm_time import format_time

_MARGIN = 1.15
"""Steps are not all as fast as the last ones."""
_SHORT_S = 600
"""Seconds within which a job may not have come to its first step though nothing was wrong."""
_ROUND_S = 600
"""Seconds to which advised times are rounded up."""
_EARLY_S = 60
"""Slurm looks for what is due once a minute, and sends a signal up to so much earlier."""
_TELLING = 0.1
"""Part of a job's time that its steps must have taken for their pace to say how many fit into it."""


def walltime(case: Case) -> list[str]:
    """The time that its own steps say, as far as a partition allows it; else the steps that fit."""
    plan, facts = case.plan, case.facts
    made, before = int(facts.get("steps_made") or 0), int(facts.get("steps_before") or 0)
    limit, lead = plan.job.time_s, lead_s(plan)
    if made <= before:
        return [_no_step(case, limit, lead)]
    done = max(before, int(facts.get("kept_step") or 0))
    pace, spent = facts.get("step_time_s"), facts.get("steps_ended_s")
    if pace is None or spent is None:
        return _steps(plan, done, made - before, f"so many were made; {plan.workload.steps} were planned")
    start_up, per_step = _parts(float(spent), float(pace), made - before, facts.get("steps_began_s"))
    needed = _rounded(start_up + (plan.workload.steps - done) * per_step * _MARGIN + lead)
    told = f"{plan.workload.steps} steps of {float(pace):.3g} s, of which it made {made}{_by_signal(case)}"
    if limit is not None and needed <= limit and done > before:
        return [f"--time {format_time(limit)}  (what is left of {told} takes about {format_time(needed)})"]
    if limit is not None and needed <= limit:
        had = f"its steps say that {format_time(needed)} are enough, and it had {format_time(limit)}{_by_signal(case)}"
        return [f"{had}: look for what it waited for (the last lines of its output) before asking for more time"]
    lines = _more_time(case, needed, told, goes_on=done > before)
    is_telling = float(spent) * _TELLING <= (made - before) * per_step
    room = limit or (max(limits(case).values(), default=None))
    if room is not None and per_step and is_telling:
        fitting = int(((room - lead) / _MARGIN - start_up) / per_step)
        where = f"the {format_time(room - lead)} before the signal" if lead else format_time(room)
        lines += _steps(plan, done, fitting, f"they fit into {where}; {plan.workload.steps} were planned")
    return lines or [f"it needs about {format_time(needed)}: {told}. Fewer steps, or faster ones, is for you to decide"]


def _parts(spent: float, pace: float, made: int, began: str | None) -> tuple[float, float]:
    """Seconds to the first step, and of one with what stands between steps, as a checkpoint being saved.

    >>> _parts(110.0, 1.0, 50, "10"), _parts(110.0, 1.0, 50, None)
    ((10.0, 2.0), (60.0, 1.0))
    """
    if began is None:
        return max(spent - made * pace, 0.0), pace
    return float(began), max((spent - float(began)) / made, pace)


def lead_s(plan: Plan) -> int:
    """Seconds by which the signal that the job asks for may come before its limit; 0 where it asks for none."""
    found = re.search(r"@(\d{1,6})$", str(plan.job.sbatch.get("signal") or ""))
    return int(found[1]) + _EARLY_S if found else 0


def _by_signal(case: Case) -> str:
    """What the job really had, where a signal ended it before its limit; the end of a sentence."""
    had, limit = case.facts.get("signalled_after_s"), case.plan.job.time_s
    if had is None:
        return ""
    of_limit = "" if limit is None else f" of {format_time(limit)}"
    return (
        f"; --sbatch signal={case.plan.job.sbatch.get('signal')} ended it after {format_time(round(float(had)))}{of_limit}: Slurm sends "
        "it up to a minute before it is due"
    )


def _no_step(case: Case, limit: int | None, lead: int) -> str:
    """What to do about a job that came to no step, by the time that it had for that."""
    if limit is None or limit - lead >= _SHORT_S:
        return f"it made no step{_by_signal(case)}: look for what it waited for (the last lines of its output) before asking for more time"
    had = f"it had {format_time(limit)}, and made no step"
    if case.facts.get("signalled_after_s") is not None:
        had = f"it made no step{_by_signal(case)}"
    return f"--time {format_time(_rounded(_SHORT_S + lead))}  ({had}; imports, model and ranks take minutes to start)"


def _steps(plan: Plan, done: int, fitting: int, why: str) -> list[str]:
    """The steps to ask for where so many fit behind those that need not be made again; some of them have to be measured."""
    fitting = min(fitting, plan.workload.steps - 1 - done)
    if fitting < plan.workload.warmup_steps + MIN_MEASURED_STEPS:
        return []
    which = f"{_round_down(fitting)} behind step {done}: " if done else ""
    return [f"--steps {done + _round_down(fitting)}  ({which}{why})"]


def _more_time(case: Case, needed: int, told: str, *, goes_on: bool) -> list[str]:
    plan, most = case.plan, limits(case)
    here = most.get(plan.job.partition or "", max(most.values(), default=None))
    if here is None or needed <= here:
        return [f"--time {format_time(needed)}  ({told})"]
    longer = [name for name, limit in most.items() if limit >= needed and same_gpu(case, name)]
    if longer:
        return [
            f"--partition {longer[0]} --time {format_time(needed)}  ({told}; {plan.job.partition} allows {format_time(here)})"
        ]
    longest = max(most.values())
    if goes_on:  # a part at a time
        where = next((name for name, limit in most.items() if limit == longest and same_gpu(case, name)), None)
        there = f"--partition {where} --time {format_time(longest)}" if where else f"--time {format_time(here)}"
        return [
            f"{there}  (no partition allows the {format_time(needed)} that the rest needs: go on again from what that keeps; {told})"
        ]
    return [
        f"no partition allows the {format_time(needed)} that it needs ({told}): the longest is {format_time(longest)}"
    ]


def limits(case: Case) -> dict[str, int]:
    """The longest time of each partition to which the job could go."""
    if case.cluster is None or not takes_options(case.plan):
        return {}
    return {partition.name: partition.max_time_s for partition in case.cluster.partitions}


def same_gpu(case: Case, name: str) -> bool:
    """Whether the partition of that name has the GPUs of the job's."""
    cluster = case.cluster
    return cluster is not None and cluster.gpu_of(cluster.partition(name)) == cluster.gpu_of(case.partition)


def _rounded(seconds: float) -> int:
    return max(math.ceil(seconds / _ROUND_S), 1) * _ROUND_S


def _round_down(steps: int) -> int:
    """Two digits are enough: 4831 steps become 4800."""
    unit: int = 10 ** max(len(str(steps)) - 2, 0)
    return steps // unit * unit
