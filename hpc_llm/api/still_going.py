"""Whether a run that is to be gone on with is over: its own job would train the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from hpc_llm.errors import RequestError, notice
from hpc_llm.records.checkpoints import start_of
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.text.pasted import for_runs_in

if TYPE_CHECKING:
    from hpc_llm.job.batch import Batch
    from hpc_llm.runs import RunStatus


def refuse_going(batches: Sequence[Batch]) -> None:
    """Raise RequestError where a run that is named to be gone on with still waits or runs; tell where nobody knows.

    A checkpoint that is named by its own folder begins a branch, whatever its run does.
    """
    starts = (getattr(one.plan.workload, "resume", None) for batch in batches for one in batch.planned)
    runs = [RunPaths(Path(start)) for start in dict.fromkeys(starts) if start is not None and is_run(Path(start))]
    if not runs:
        return
    from hpc_llm.runs.looks import look
    from hpc_llm.runs.statuses import status_of

    for run, seen in zip(runs, look(runs), strict=True):
        found, known = status_of(seen), seen.known
        is_untold = (
            known.is_silent and known.job is None and not known.records.is_whole
        )  # its own record may be of an earlier try
        if found.state == "UNKNOWN" or (found.is_over and is_untold):
            why = known.complaint if is_untold else found.reason or "its records do not say"
            notice(
                f"--resume {run.run_id}: whether that run is over is not known ({why}); a job of its own would train the same steps"
            )
        elif not found.is_over:
            raise RequestError(for_runs_in(run.root.parent, _refusal(run, found)))


def _refusal(run: RunPaths, found: RunStatus) -> str:
    job = f" as job {found.job_id}" if found.job_id else ""
    start = start_of(run.root)
    branch = (
        f" For a branch beside it name the checkpoint, which it removes once it has kept newer ones: --resume {quote(str(start.path))}."
        if start is not None
        else ""
    )
    return (
        f"--resume {run.run_id}: that run is {found.state}{job} and goes on by itself, a second job would train the same steps. "
        f"Wait for its end, which `hpc-llm status {run.run_id}` tells, or end it with `hpc-llm cancel {run.run_id}`.{branch}"
    )
