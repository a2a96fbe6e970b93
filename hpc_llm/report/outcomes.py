"""What `hpc-llm status` and `hpc-llm diagnose` say of the runs that did not complete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpc_llm.diagnose import diagnose_job, jobs_under
from hpc_llm.report.runs import ReportedRun
from hpc_llm.run import Outcome, RunPaths
from hpc_llm.runs import status


def settle(runs: Sequence[ReportedRun]) -> None:
    """Give runs of ours whose own records leave the outcome open the one of `status`; Slurm is asked once."""
    incomplete = [run for run in runs if run.is_ours and not _completed(run)]
    if not incomplete:
        return
    # Of all that did not complete, because the answers are kept, and the diagnosis needs them too.
    for run, found in zip(incomplete, status([RunPaths(Path(run.source)) for run in incomplete]), strict=True):
        if run.row.outcome != Outcome.UNKNOWN.value or found.state == Outcome.UNKNOWN.value:
            continue
        if found.outcome is None:
            run.row.outcome_reason = f"it is not over: {found.state}"
        elif found.outcome not in (Outcome.COMPLETED, Outcome.UNKNOWN):
            run.row.outcome, run.row.outcome_reason = found.outcome.value, found.reason or run.row.outcome_reason


def explain(runs: Sequence[ReportedRun], paths: Iterable[str]) -> None:
    """Give each run that did not complete the diagnosis of its job, whose files are under `paths`."""
    incomplete: dict[Path, list[ReportedRun]] = {}
    for run in runs:
        if run.is_known and not _completed(run):
            incomplete.setdefault(Path(run.source).resolve(), []).append(run)
    for files in jobs_under(map(Path, paths)) if incomplete else ():
        of_job = [run for file in files for run in incomplete.get(file.resolve(), ())]
        if of_job:
            diagnosis = diagnose_job(files).to_dict()
            for run in of_job:
                run.diagnosis = diagnosis


def _completed(run: ReportedRun) -> bool:
    return run.row.outcome == Outcome.COMPLETED.value
