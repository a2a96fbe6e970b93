"""Why runs ended as they did, and how they compare."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hpc_llm.api.find import find_run, logs_folder, paths_of_logs
from hpc_llm.api.handle import Named, Run, names_of
from hpc_llm.errors import RequestError
from hpc_llm.records.files import is_trusted_link
from hpc_llm.text.near_files import near_file
from hpc_llm.text.pasted import refuse_address, refuse_link_by_default

if TYPE_CHECKING:
    from hpc_llm.diagnosis import Diagnosis
    from hpc_llm.records.run import RunPaths
    from hpc_llm.reporting import Report
    from hpc_llm.reporting.table import Table

_OF_A_LOG = re.compile(r"\.(?:log|out|err|txt|csv|jsonl?|gz|xz|bz2|zst|[oe]\d+)$", re.IGNORECASE)
OUTPUT = "report"
"""Folder of a report where none is named."""


def diagnose(
    targets: Named | Iterable[Named],
    *,
    logs: str | os.PathLike[str] | None = None,
) -> list[Diagnosis]:
    """Why runs or training logs ended: the cause, the evidence, what to do. Targets are runs, their names, files, folders.

    Raises:
        RequestError: a target that is neither a path nor the name of a run in `logs`.
    """
    from hpc_llm.parsing.streams import pairs

    given = names_of(targets)
    errors = pairs(Path(name) for name in given if isinstance(name, str) and name and Path(name).is_file())
    beside = {output: name for name, output in errors.items()}
    folder = logs_folder(logs)
    return [
        found
        for target in given
        if target not in errors
        for found in _diagnose(target, folder, beside.get(target) if isinstance(target, str) else None)
    ]


def _diagnose(target: Run | str, logs: Path, errors: str | None) -> Iterable[Diagnosis]:
    """`errors` is the file of errors beside an output: both are of one job."""
    from hpc_llm.diagnosis import diagnose_jobs, diagnose_run, jobs_under

    if isinstance(target, Run):
        yield diagnose_run(target.paths)
    elif target and (path := Path(target)).exists():
        yield from diagnose_jobs(jobs_under([path, *([Path(errors)] if errors else [])]))
    else:
        yield diagnose_run(_run_or_no_file(target, logs))


def _run_or_no_file(target: str, logs: Path) -> RunPaths:
    """The run of that name; where there is none, and the name is that of a file, a RequestError speaks of both."""
    try:
        return find_run(target, logs)
    except RequestError:
        if not _OF_A_LOG.search(target) or "://" in target:
            raise
        near = near_file(target)
        raise RequestError(
            f"there is no file or folder {target}{f': did you mean {near}?' if near else ','} "
            f"{'No' if near else 'and no'} run of that name is in {logs}."
        ) from None


def diagnose_stream(log: IO[bytes]) -> Diagnosis:
    """The same of a log that is read from an open file, as standard input."""
    from hpc_llm.diagnosis import diagnose_stream

    return diagnose_stream(log)


@dataclass(frozen=True, kw_only=True)
class WrittenReport:
    """A report and where it was written."""

    report: Report
    files: list[Path]
    """The page first."""
    regressions: list[str]
    """What got worse than the baseline beyond the tolerance, one sentence each."""

    @property
    def not_compared(self) -> list[str]:
        """Rows of which a watched figure, or all, could not be compared with the baseline, and why; one sentence each."""
        return list(self.report.baseline.not_compared) if self.report.baseline is not None else []

    @property
    def summary(self) -> str:
        """One line: how many runs of how many settings, and how they ended."""
        from hpc_llm.reporting import summary

        return summary(self.report)


def report(
    paths: Named | Iterable[Named],
    *,
    logs: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = OUTPUT,
    baseline: Named | None = None,
    tolerance: float = 0.05,
    assume: Iterable[str] = (),
) -> WrittenReport:
    """Comparison table, plots and one HTML page of runs, logs, or folders of them, written to the folder `output`.

    Runs may be named as in `logs`. `baseline` is an earlier run, log or CSV to compare with; a change for the worse by a share of `tolerance` is no
    regression yet. `assume` holds `COLUMN=VALUE` for what logs do not say. Where a package of the extra `plot`
    is missing, all but what needs it is written, and a Notice says so.

    Raises:
        RequestError: a path that is not there, no run in any, or an `output` that is a file.
    """
    from hpc_llm.reporting import (
        assumptions,
        collect,
        explain,
        make_report,
        regressions,
        tell_what_is_missing,
        write_report,
    )

    if not 0 <= tolerance < 1:  # nothing can fall by more than all of it: no regression would be told
        percent = tolerance if 1 <= tolerance < 100 else 5.0
        raise RequestError(f"tolerance {tolerance:g} is no share below 1: give {percent / 100:g} for {percent:g} %.")
    refuse_address("output", os.fspath(output))
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file: give a folder, which is made if it is not there.")
    refuse_link_by_default(folder, OUTPUT)
    if folder.is_symlink() and folder.exists() and not is_trusted_link(folder):
        raise RequestError(f"{folder} is a link of somebody to what is not theirs: give another folder.")
    names = paths_of_logs(paths, logs)
    for name in names:
        if folder.is_dir() and Path(name).resolve().is_relative_to(folder.resolve()):
            raise RequestError(f"{folder} holds what is to be read, {name}: give another folder for the report.")
    then = _baseline(baseline, logs) if baseline is not None else None
    if then is not None and then[0].resolve().parent == folder.resolve():
        raise RequestError(
            f"{folder} holds the baseline, {then[0]}, which the report would replace: give another folder for the report."
        )
    runs = collect(names, without=folder, assumed=assumptions(list(assume)))
    if not any(run.is_known for run in runs):
        _refuse_without_figures(names)
        raise RequestError(
            f"there is no run or log of a known format in {', '.join(names)}: give folders or files that hold one."
        )
    explain(runs, names)
    made = make_report(runs, then, tolerance)
    files = write_report(made, folder)
    tell_what_is_missing()
    return WrittenReport(report=made, files=files, regressions=regressions(made))


def _refuse_without_figures(names: Sequence[str]) -> None:
    """Raise RequestError where all runs are of tasks that measure nothing, which a report leaves out."""
    from hpc_llm.parsing import parse_paths
    from hpc_llm.parsing.rows import measures_nothing

    if tasks := sorted({str(row.task) for row in parse_paths(names) if measures_nothing(row.task)}):
        raise RequestError(
            f"{', '.join(names)}: the runs in there are of {' and '.join(tasks)} alone, which measure nothing that a report shows: "
            "give folders or files of trainings or inference as well. `hpc-llm status` shows these runs."
        )


def _baseline(named: Named, logs: str | os.PathLike[str] | None) -> tuple[Path, Table]:
    """The baseline's path and rows; a run may be named as in `logs`."""
    from hpc_llm.reporting import read_baseline

    found = paths_of_logs(named, logs)
    for path in found:
        refuse_address("--baseline", os.fspath(path))
    if len(found) != 1:
        raise RequestError(f"the baseline {named} names {len(found)} runs: name one.")
    return Path(found[0]), read_baseline(Path(found[0]))
