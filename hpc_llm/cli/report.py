"""hpc-llm report: comparison table, plots and one HTML page."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption, OutputFolder
from hpc_llm.cli.output import note, print_json

if TYPE_CHECKING:
    from hpc_llm.api import WrittenReport

EXIT_REGRESSION = 3


def register(app: typer.Typer) -> None:
    app.command("report")(report_command)


def report_command(
    paths: Annotated[list[str], typer.Argument(metavar="PATH|RUN…", help="Runs, logs, or folders of them.")],
    output: OutputFolder = Path("report"),
    baseline: Annotated[
        Optional[str],
        typer.Option(metavar="RUN|CSV", help="Earlier run, log or CSV of parse or report to compare with."),
    ] = None,
    tolerance: Annotated[
        str, typer.Option(metavar="SHARE", help="Change for the worse that is no regression yet, a share: 0.05 is 5 %.")
    ] = "0.05",
    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression",
            help="Exit 3 when something got worse beyond the tolerance, 2 when not all could be compared.",
        ),
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

    share = _share(tolerance)
    gc.set_threshold(5_000, 10, 10)  # tables of thousands of rows hold each other in cycles, and need much memory
    made = report(paths, logs=logs, output=output, baseline=baseline, tolerance=share, assume=assume or ())
    note(made.summary)
    found = made.report.baseline.changes if made.report.baseline is not None else []
    compared = sum(one.is_compared for one in found)
    if made.report.baseline is not None:
        others = sum(not one.same_setting for one in found)
        beside = f"; {others} more of another setting, which tells nothing of better or worse" if others else ""
        note(f"rows compared with {baseline}: {compared}, of them worse: {len(made.regressions)}{beside}")
    _print(made, as_json)
    return _code(made, baseline or "") if fail_on_regression else 0


def _code(made: WrittenReport, baseline: str) -> int:
    """The exit code of --fail-on-regression. Raises RequestError where what is watched was not compared, or not all of it."""
    from hpc_llm.errors import RequestError

    if made.regressions:
        return EXIT_REGRESSION
    found = made.report.baseline.changes if made.report.baseline is not None else []
    there = sum(one.same_setting for one in found)
    compared = any(one.is_compared for one in found)
    if not compared and there:
        raise RequestError(
            f"--fail-on-regression: {there} row{'' if there == 1 else 's'} found in {baseline}, and no figure that is watched is known on both "
            "sides, so nothing was compared: see above. Give a baseline that holds tokens_per_second or peak_allocated_bytes as numbers."
        )
    if not compared:
        raise RequestError(
            f"--fail-on-regression: no completed row has its counterpart among the completed ones of {baseline}, so nothing was compared. "
            "Give a baseline with completed runs of the same model, method, cluster and number of GPUs; the report says what each row is of."
        )
    if made.not_compared:
        raise RequestError(
            f"--fail-on-regression: nothing that was compared got worse, and not all was compared with {baseline}: see above. "
            "Measure these runs again, or leave them out on both sides."
        )
    return 0


def _share(text: str) -> float:
    """A tolerance as it was typed, `0.05` or `5%`."""
    from hpc_llm.errors import RequestError

    number, is_percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number)
    except ValueError:
        raise RequestError(
            f"--tolerance is '{text}': a share is needed, as in --tolerance 0.05, which is 5 %."
        ) from None
    return value / 100 if is_percent else value


def _print(made: WrittenReport, as_json: bool) -> None:
    if as_json:
        files = [str(path) for path in made.files]
        print_json({"files": files, "regressions": made.regressions, "not_compared": made.not_compared})
        return
    for path in made.files:
        typer.echo(path)
    for line in made.regressions:
        note(f"worse: {line}")
    for line in made.not_compared:
        note(f"not compared: {line}")
