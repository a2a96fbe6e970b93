"""hpc-llm reconcile: bring the run folders and the scheduler together after something was cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption
from hpc_llm.cli.output import note, print_json, with_logs


def register(app: typer.Typer) -> None:
    app.command("reconcile")(reconcile_command)


def reconcile_command(
    runs: Annotated[
        Optional[list[str]], typer.Argument(metavar="[RUN]…", help="Runs to look at; default: all.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> None:
    """Adopt jobs that no run knows, clear runs that never became a job, submit the missing members of a sweep."""
    from hpc_llm.api.reconciling import reconcile

    done = reconcile(runs or None, logs=logs, dry_run=dry_run)
    code = 1 if any(one.deed.name == "UNKNOWN" for one in done) else 0
    if as_json:
        print_json(
            {
                "runs": [
                    {"run_id": r.run_id, "deed": r.deed.value, "job_id": r.job_id, "why": r.why or None} for r in done
                ]
            }
        )
        raise typer.Exit(code)
    would = "would be " if dry_run else ""
    for one in done:
        deed = one.deed.value if one.deed.name in ("LEFT", "UNKNOWN") else would + one.deed.value
        job = f" as job {one.job_id}" if one.job_id else ""
        typer.echo(f"{one.run_id}  {deed}{job}{f': {with_logs(one.why)}' if one.why else ''}")
    if not done:
        note("the runs and the scheduler agree: there is nothing to put right")
    raise typer.Exit(code)
