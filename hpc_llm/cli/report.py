"""hpc-llm report: comparison table, plots and one HTML page."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import note, print_json

EXIT_REGRESSION = 3


def register(app: typer.Typer) -> None:
    app.command("report")(report_command)


def report_command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH|RUN…", help="Runs, logs, or folders of them.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write to.")] = Path("report"),
    baseline: Annotated[
        Optional[str],
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
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Comparison table, plots and one HTML page."""
    from hpc_llm.errors import RequestError

    if fail_on_regression and baseline is None:
        raise RequestError("--fail-on-regression needs something to compare with: give --baseline RUN or CSV.")
    from hpc_llm.api import report

    gc.set_threshold(5_000, 10, 10)  # tables of thousands of rows hold each other in cycles, and need much memory
    made = report(paths, logs=logs, output=output, baseline=baseline, tolerance=tolerance, assume=assume or ())
    note(made.summary)
    if made.report.baseline is not None:
        compared = sum(one.same_setting for one in made.report.baseline.changes)
        others = len(made.report.baseline.changes) - compared
        beside = f"; {others} more of another setting, which tells nothing of better or worse" if others else ""
        note(f"rows compared with {baseline}: {compared}, of them worse: {len(made.regressions)}{beside}")
    _print(made.files, made.regressions, as_json)
    compared_rows = made.report.baseline.changes if made.report.baseline is not None else []
    if fail_on_regression and not made.regressions and not any(one.same_setting for one in compared_rows):
        raise RequestError(
            f"--fail-on-regression: no row has its counterpart in {baseline}, so nothing was compared. "
            "Give a baseline of the same model, method, cluster and number of GPUs; the report says what each row is of."
        )
    return EXIT_REGRESSION if fail_on_regression and made.regressions else 0


def _print(files: list[Path], regressions: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"files": [str(path) for path in files], "regressions": regressions})
        return
    for path in files:
        typer.echo(path)
    for line in regressions:
        note(f"worse: {line}")
