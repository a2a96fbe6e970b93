"""How much of a training is left behind the checkpoint that it goes on from, by what the run before it measured of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpc_llm.planning.experiment import PlanWithOrigins
    from hpc_llm.records.checkpoints import Kept
    from hpc_llm.records.run import RunPaths

LEFT = "steps left behind step"
"""What is told begins so."""
_ONE_STEP = ("cluster", "partition", "expected_gpu", "method", "model", "world_size", "global_batch_size", "micro_batch_size",
    "sequence_length", "precision", "recompute", "engine")  # fmt: skip
"""Fields of the plan without which a step takes another time."""


def cut_off_again(planned: PlanWithOrigins, start: Kept, run: RunPaths, before: Mapping[str, Any]) -> str | None:
    """That the steps left take longer than the time limit, at the pace of `run`, whose flat plan is `before`; None where they do not,
    or nobody knows it."""
    from hpc_llm.estimating.walltime import proposal
    from hpc_llm.records.files import read_json
    from hpc_llm.runs.fields import Fields
    from hpc_llm.runs.progress import read_pace
    from hpc_llm.site.slurm_time import format_time

    plan, own = planned.plan, planned.plan.flat()
    pace = read_pace(run.steps, before) if all(before.get(name) == own[name] for name in _ONE_STEP) else None
    if pace is None or pace.step_time_s is None or plan.job.time_s is None:
        return None
    began = Fields(read_json(run.exit) or {}).moment("started_at")
    left, first_s = plan.training.steps - start.step, pace.start_up_s(began) or 0.0
    whole_s, limit_s = first_s + left * pace.step_time_s, plan.job.time_s
    if whole_s <= limit_s:
        return None
    fit = max(0, int((limit_s - first_s) / pace.step_time_s))
    goes_on = (
        "--resume goes on from what it keeps by then"
        if plan.training.save_every
        else "nothing of them is kept without --save-every N"
    )
    return (
        f"{LEFT} {start.step}: {left}, which take {format_time(round(whole_s))} with the start at the "
        f"{pace.step_time_s:.3g} s a step of {run.run_id}, and the time limit is {format_time(limit_s)}: it ends the job after about {fit} "
        f"of them, and {goes_on}. --time {format_time(proposal(whole_s))} leaves room for all"
    )
