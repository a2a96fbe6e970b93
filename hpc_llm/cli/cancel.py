"""hpc-llm cancel: end runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import note, print_json
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.runs import Cancellation


def register(app: typer.Typer) -> None:
    app.command("cancel")(cancel_command)


def cancel_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs to cancel, or names or job ids of runs whose folders are gone."),
    ],
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Cancel runs; says what was already over. Only jobs that are proven to be theirs are touched."""
    from hpc_llm.api.cancelling import cancel

    done = cancel(runs, logs=logs)
    if as_json:
        print_json({"runs": [_document(item) for item in done]})
    for item in done:
        name = item.run_id or f"job {item.job_id}"
        if item.problem is not None:
            note(f"{name} was not cancelled: {item.problem}")
        elif not as_json:
            typer.echo(f"{name}  {_was_over(item) if item.was_over else 'cancelled'}")
    return 1 if any(item.problem for item in done) else 0


def _was_over(item: Cancellation) -> str:
    """How it had ended, and where nobody knows that, what there is."""
    if item.outcome not in (None, "UNKNOWN"):
        return f"was over: {item.outcome}"
    return one_line(f"was over, and how it ended is not known{f': {item.reason}' if item.reason else ''}")


def _document(item: Cancellation) -> dict[str, object]:
    return {
        "run_id": item.run_id or None,
        "job_id": item.job_id,
        "was_over": item.was_over,
        "outcome": item.outcome,
        "problem": item.problem,
        "reason": item.reason,
    }
