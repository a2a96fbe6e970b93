"""hpc-llm cancel: end runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import print_json


def register(app: typer.Typer) -> None:
    app.command("cancel")(cancel_command)


def cancel_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Runs to cancel.")],
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> None:
    """Cancel runs; says what was already over."""
    from hpc_llm.cli.runs import find_runs
    from hpc_llm.runs import cancel

    done = cancel(find_runs(runs, logs))
    if as_json:
        print_json({"runs": [{"run_id": c.run_id, "was_over": c.was_over, "outcome": c.outcome} for c in done]})
        return
    for item in done:
        typer.echo(f"{item.run_id}  {f'was over: {item.outcome}' if item.was_over else 'cancelled'}")
