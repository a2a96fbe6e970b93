"""hpc-llm status: what became of the runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import as_cells, is_terminal, note, print_json, print_table, terminal_width, with_logs
from hpc_llm.cli.terminal import steered
from hpc_llm.text.shown import one_line
from hpc_llm.text.tables import fits, wrapped

if TYPE_CHECKING:
    from hpc_llm.runs import RunStatus

REFRESH_S = 10.0


def register(app: typer.Typer) -> None:
    app.command("status")(status)


def status(
    runs: Annotated[Optional[list[str]], typer.Argument(metavar="[RUN]…", help="Runs to show; default: all.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until all are over.")] = False,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> None:
    """What became of the runs: state, outcome, time, tokens/s so far."""
    from hpc_llm.api.find import where_runs_are
    from hpc_llm.api.handle import status as ask

    while True:
        statuses = ask(runs or None, logs=logs)
        if as_json:
            print_json({"runs": [s.to_dict() for s in statuses]})
        elif not statuses:
            note(where_runs_are(logs))
        else:
            if watch and is_terminal():
                steered(sys.stdout).write("\x1b[H\x1b[2J")
            print_statuses(statuses)
        if not watch or all(s.is_over for s in statuses):
            return
        time.sleep(REFRESH_S)


def print_statuses(statuses: Sequence[RunStatus]) -> None:
    """The table, and under it the reasons of runs that did not complete, and what ran otherwise than planned."""
    from hpc_llm.api.layout import format_time

    of_study = any(s.study for s in statuses)
    columns: dict[str, list[str | int | None]] = {
        "run": [s.run_id for s in statuses],
        **(
            {"name": [s.study_run for s in statuses], "expected": [s.expectation for s in statuses]} if of_study else {}
        ),
        "job": [s.job_id for s in statuses],
        "state": [s.state for s in statuses],
        "outcome": [s.outcome.value if s.outcome else None for s in statuses],
        "exit": [s.exit_code for s in statuses],
        "time": [format_time(int(s.elapsed_s)) if s.elapsed_s is not None else None for s in statuses],
        "step": [s.step if s.step is None or s.steps is None else f"{s.step}/{s.steps}" for s in statuses],
        "tokens/s": [f"{s.tokens_per_second:.1f}" if s.tokens_per_second is not None else None for s in statuses],
    }
    width = terminal_width()
    if width is not None and not fits(as_cells(list(zip(*columns.values(), strict=True))), list(columns), width):
        columns = {name: column for name, column in columns.items() if name not in set(_saying_nothing(columns))}
    print_table(list(zip(*columns.values(), strict=True)), list(columns))
    for s in statuses:
        if s.reason:
            as_expected = "as expected: " if s.expect is not None and s.is_as_expected else ""
            typer.echo(wrapped(one_line(f"{s.run_id}: {as_expected}{with_logs(s.reason)}"), terminal_width(), 2))
        if s.adapted:
            typer.echo(wrapped(f"{s.run_id}: adapted to its node: {s.adapted}", terminal_width(), 2))


def _saying_nothing(columns: Mapping[str, Sequence[str | int | None]]) -> Iterator[str]:
    """Columns that leave a narrow terminal to the others: an outcome that is the state's own word in each row, and the exit code 0."""
    if all(outcome in (None, state) for outcome, state in zip(columns["outcome"], columns["state"], strict=True)):
        yield "outcome"
    if not any(columns["exit"]):
        yield "exit"
