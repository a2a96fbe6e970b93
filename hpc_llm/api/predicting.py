"""What is predicted of runs that are about to be submitted: kept with each, to be set beside what was measured, and told in time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import notice

if TYPE_CHECKING:
    from hpc_llm.estimating.step_time import StepTime
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.site.cluster import Cluster


def predictions(batch: Batch) -> list[dict[str, Any] | None]:
    """What experiment.json keeps of the prediction of each run; None where nothing can be said."""
    from hpc_llm.api.calibrating import calibration_of
    from hpc_llm.api.fit import memory_there
    from hpc_llm.api.searching import searches
    from hpc_llm.estimating.step_time import step_time
    from hpc_llm.planning.tasks import find

    calibration = calibration_of(batch.cluster.name)
    found: list[dict[str, Any] | None] = []
    for planned in batch.planned:
        if searches(planned.plan):  # nobody knows which trainings it will be
            found.append(None)
            continue
        is_training = find(planned.plan.task).trains
        time = step_time(planned.plan, batch.cluster, calibration=calibration) if is_training else None
        memory = memory_there(planned.plan, batch.cluster)
        device = memory.device if memory else None
        found.append({**_of_time(time), **({"peak_allocated_bytes": device.peak} if device else {})} or None)
    return found


def _of_time(time: StepTime | None) -> dict[str, Any]:
    if time is None:
        return {}
    return {
        "step_time_s": time.step_time_s,
        "step_time_interval_s": list(time.interval),
        "run_time_s": time.run_time_s,
        "run_time_interval_s": list(time.run_interval),
    }


def tell_times(batches: Sequence[Batch]) -> None:
    """Tell of runs that their time limit is expected to cut off, and of the limit that leaves them room."""
    from hpc_llm.api.calibrating import calibration_of
    from hpc_llm.api.remaining import LEFT

    told: dict[str, None] = {}
    for batch in batches:
        calibration = calibration_of(batch.cluster.name)
        for planned in batch.planned:
            is_told = any(one.startswith(LEFT) for one in planned.notices)  # by what it measured of itself
            if not is_told and (sentence := too_short(planned.plan, batch.cluster, calibration)):
                told[sentence] = None
    for sentence in told:
        notice(sentence)


def too_short(plan: Plan, cluster: Cluster, calibration: Any) -> str | None:
    """That the plan's time limit is expected to cut it off, as a sentence without its full stop; None where it is not."""
    from hpc_llm.api.searching import searches
    from hpc_llm.estimating.step_time import step_time
    from hpc_llm.planning.tasks import find
    from hpc_llm.site.slurm_time import format_time

    limit = plan.job.time_s
    if limit is None or searches(plan) or not find(plan.task).trains:
        return None
    time = step_time(_left_of(plan), cluster, calibration=calibration)
    if time is None or time.run_time_s <= limit:
        return None
    low, likely, high = (
        format_time(round(seconds)) for seconds in (time.run_interval[0], time.run_time_s, time.run_interval[1])
    )
    takes = (
        f"{plan.job.name} is expected to take {likely} ({low} to {high}), and its time limit is {format_time(limit)}"
    )
    keeps = "" if plan.training.save_every else "--save-every N keeps checkpoints, from which --resume goes on"
    longest = format_time(time.proposed_time_s)
    more = "; ".join(filter(None, (_longer(plan, cluster, max(limit, time.proposed_time_s)), keeps)))
    if time.proposed_time_s <= limit:
        return f"{takes}, the longest that is allowed there{more and f': {more}'}"
    if time.is_over_limit:
        return f"{takes}: --time {longest} is the longest that is allowed there, and the run may need more{more and f'; {more}'}"
    return f"{takes}: --time {longest} leaves room"


def _longer(plan: Plan, cluster: Cluster, longest_s: int) -> str:
    """Which QOS allow a job of that size more, as a clause; empty where none does."""
    from hpc_llm.planning.limits import qos_for_longer, sizes

    size = sizes(plan.parallel.nodes, plan.parallel.gpus_per_node)
    names = qos_for_longer(longest_s, size, cluster, cluster.partition(plan.job.partition))
    return f"{' or '.join(f'--sbatch qos={name}' for name in names)} allows more" if names else ""


def _left_of(plan: Plan) -> Plan:
    """The plan with the steps that are left behind the checkpoint that it goes on from."""
    from hpc_llm.records.checkpoints import start_of

    start = start_of(Path(plan.training.resume)) if plan.training.resume is not None else None
    return plan if start is None else plan.changed(steps=max(1, plan.training.steps - start.step))
