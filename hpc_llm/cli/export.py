"""hpc-llm export: send finished runs to a tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption, LogsOption, OutputFolder
from hpc_llm.cli.output import note, print_json, print_table


def register(app: typer.Typer) -> None:
    app.command("export")(export_command)


def export_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Finished runs.")],
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="Tracker: wandb, mlflow, tensorboard.")],
    output: OutputFolder = Path("export"),
    uri: Annotated[
        Optional[str],
        typer.Option(metavar="URI", help="MLflow's server, database or folder in place of a database in DIR."),
    ] = None,
    project: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME", help="Project of wandb, experiment of MLflow; default: the run's study, else hpc-llm."
        ),
    ] = None,
    logs: LogsOption = Path("logs"),
    as_json: JsonOption = False,
) -> int:
    """Send finished runs to a tracker: plan, result and every step. Sent twice they do not double."""
    from hpc_llm.api import export

    done = export(runs, to=to, output=output, uri=uri, project=project, logs=logs)
    if as_json:
        print_json({"to": to, "runs": [one.to_dict() for one in done.runs], "next_step": done.next_step})
        return 0
    print_table([[one.run_id, one.state, one.place] for one in done.runs], ["run", "state", "place"])
    note(done.next_step)
    return 0
