"""Ending runs on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from hpc_llm.errors import SubmissionError
from hpc_llm.run import RunPaths, read_json, write_json
from hpc_llm.runs.scheduler import scancel
from hpc_llm.runs.slurm_records import compress_job_ids
from hpc_llm.runs.statuses import RunStatus, status
from hpc_llm.submit.process import end_group, is_on_this_host
from hpc_llm.submit.runs import read_submission

_ALREADY_OVER = ("Invalid job id", "already completing or completed")


@dataclass(frozen=True)
class Cancellation:
    """What cancelling did to one run."""

    run_id: str
    was_over: bool
    """It had ended before; nothing was done."""
    outcome: str | None
    """How it had ended, if it had."""


def cancel(runs: Sequence[RunPaths]) -> list[Cancellation]:
    """Cancel those of `runs` that are not over: Slurm jobs in one request, local ones by their process group.

    Raises:
        SubmissionError: Slurm could not be asked, or a run belongs to another machine.
    """
    before = status(runs)
    going = [run for run, state in zip(runs, before, strict=True) if not state.is_over]
    for run in going:
        _check_reachable(run)
    for run in going:  # the marks first: a queue that is about to start one of them must see it
        write_json(run.cancelled, {"schema": 1, "requested_at": datetime.now(timezone.utc).isoformat()})
    _cancel_slurm(going)
    for run in going:
        _cancel_local(run)
    return [_cancellation(state) for state in before]


def _cancellation(before: RunStatus) -> Cancellation:
    return Cancellation(before.run_id, before.is_over, before.outcome.value if before.outcome else None)


def _check_reachable(run: RunPaths) -> None:
    process = (read_submission(run) or {}).get("process")
    if process is not None and not is_on_this_host(process):
        raise SubmissionError(f"run {run.run_id} belongs to {process.get('host')}: cancel it there")


def _cancel_slurm(runs: Sequence[RunPaths]) -> None:
    jobs = {run: submission["job_id"] for run in runs if (submission := _slurm_submission(run))}
    if not jobs:
        return
    complaint = scancel(compress_job_ids(list(jobs.values())))
    unexpected = [line for line in complaint.splitlines() if not any(words in line for words in _ALREADY_OVER)]
    if unexpected:
        for run in jobs:
            run.cancelled.unlink(missing_ok=True)
        raise SubmissionError(f"scancel failed: {' '.join(unexpected)}")


def _slurm_submission(run: RunPaths) -> dict[str, str] | None:
    submission = read_submission(run)
    return submission if submission and submission["scheduler"] == "slurm" else None


def _cancel_local(run: RunPaths) -> None:
    script = (read_json(run.process) or {}).get("script")
    if script is not None:
        end_group(script)
