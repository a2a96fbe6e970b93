"""What `hpc-llm diagnose` says of the logs of others that did not complete; runs of ours bring it with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpc_llm.causes.verdict import doubt
from hpc_llm.diagnosis import diagnose_files, jobs_under
from hpc_llm.parsing.parallel import of_each
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun


def explain(runs: Sequence[ReportedRun], paths: Iterable[str]) -> None:
    """Give each log that did not complete the diagnosis of its job, whose files are under `paths`."""
    incomplete: dict[Path, list[ReportedRun]] = {}
    for run in runs:
        if run.is_known and not run.is_ours and run.row.outcome != Outcome.COMPLETED.value:
            incomplete.setdefault(Path(run.source).resolve(), []).append(run)
    jobs = jobs_under(map(Path, paths)) if incomplete else []
    wanted = [files for files in jobs if any(file.resolve() in incomplete for file in files)]
    for files, diagnosis in zip(wanted, of_each(diagnose_files, wanted), strict=True):
        of_run = {one.source: one for one in diagnosis.runs}
        for run in (run for file in files for run in incomplete.get(file.resolve(), ())):
            run.diagnosis = of_run.get(run.row.run_id or "", diagnosis).to_dict()


def with_doubt(run: ReportedRun, cause: str) -> str:
    """The cause as `diagnose` says it: with its confidence where that is little."""
    said = doubt(run.diagnosis.get("confidence"))
    return f"{cause} ({said})" if said else cause
