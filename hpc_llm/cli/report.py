"""hpc-llm report: comparison table, plots and one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import JsonOption
from hpc_llm.cli.output import note, print_json

if TYPE_CHECKING:
    from hpc_llm.report import ReportedRun

EXIT_REGRESSION = 3


def register(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Runs, logs, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write to.")] = Path("report"),
    baseline: Annotated[
        Optional[Path],
        typer.Option(metavar="RUN|CSV", help="Earlier run, log or CSV of parse or report to compare with."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(metavar="SHARE", help="Change for the worse that is no regression yet.", min=0.0)
    ] = 0.05,
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit 3 when something got worse beyond the tolerance.")
    ] = False,
    assume: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="COLUMN=VALUE",
            help="What logs do not say, e.g. model=llama2-7b (repeatable); fills empty cells only.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Comparison table, plots and one HTML page."""
    from hpc_llm.errors import RequestError

    if fail_on_regression and baseline is None:
        raise RequestError("--fail-on-regression needs something to compare with: give --baseline RUN or CSV.")
    if output.exists() and not output.is_dir():
        raise RequestError(f"-o {output} is a file: give a folder, which is made if it is not there.")
    from hpc_llm.report import (
        assumptions,
        collect,
        make_report,
        read_baseline,
        regressions,
        require_plotting,
        summary,
        write_report,
    )

    require_plotting()
    then = (baseline, read_baseline(baseline)) if baseline is not None else None
    runs = collect(paths, without=output, assumed=assumptions(assume or []))
    if not any(run.is_known for run in runs):
        raise RequestError(
            f"there is no run or log of a known format in {', '.join(paths)}: give folders or files that hold one."
        )
    _settle(runs)
    _explain(runs, paths)
    made = make_report(runs, then, tolerance)
    files, found = write_report(made, output), regressions(made)
    note(summary(made))
    if made.baseline is not None:
        note(f"rows compared with {baseline}: {len(made.baseline.changes)}, of them worse: {len(found)}")
    _print(files, found, as_json)
    return EXIT_REGRESSION if fail_on_regression and found else 0


def _settle(runs: list[ReportedRun]) -> None:
    """Give runs of ours whose own records leave the outcome open the one that `hpc-llm status` gives; Slurm is asked once."""
    from hpc_llm.run import Outcome, RunPaths
    from hpc_llm.track import status

    incomplete = [run for run in runs if run.is_ours and run.row.outcome != Outcome.COMPLETED.value]
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


def _explain(runs: list[ReportedRun], paths: list[str]) -> None:
    """Give each run that did not complete its diagnosis, of all files of its job."""
    from hpc_llm.run import Outcome

    incomplete: dict[Path, list[ReportedRun]] = {}
    for run in runs:
        if run.is_known and run.row.outcome != Outcome.COMPLETED.value:
            incomplete.setdefault(Path(run.source).resolve(), []).append(run)
    for files in _jobs(paths) if incomplete else ():
        of_job = [run for file in files for run in incomplete.get(file.resolve(), ())]
        if of_job:
            diagnosis = _diagnosis(files)
            for run in of_job:
                run.diagnosis = diagnosis


def _jobs(paths: list[str]) -> list[list[Path]]:
    from hpc_llm.diagnose import jobs_under

    return jobs_under(map(Path, paths))


def _diagnosis(files: list[Path]) -> dict[str, Any]:
    """What `hpc-llm diagnose --json` prints of one job."""
    from hpc_llm.diagnose import diagnose_files, diagnose_run
    from hpc_llm.run import RunPaths, is_run

    found = diagnose_run(RunPaths(files[0].absolute())) if is_run(files[0]) else diagnose_files(files)
    return found.to_dict()


def _print(files: list[Path], regressions: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in files], "regressions": regressions})
        return
    for path in files:
        typer.echo(path)
    for line in regressions:
        note(f"worse: {line}")
