"""hpc-llm logs: the output of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hpc_llm.cli.options import LogsOption
from hpc_llm.cli.output import note
from hpc_llm.cli.progress import Waits
from hpc_llm.cli.terminal import Output


def register(app: typer.Typer) -> None:
    app.command("logs")(logs_command)


def logs_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id, its start, its folder or the job id.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run is over.")] = False,
    logs: LogsOption = Path("logs"),
) -> None:
    """Print the run's output: its standard output to stdout, its errors to stderr.

    A terminal gets it without what would steer it; a pipe or a file gets it as it is.
    """
    from hpc_llm.api.handle import one_run
    from hpc_llm.api.printed import blocks

    found = one_run(run, logs)
    outputs = {"stdout": Output(sys.stdout), "stderr": Output(sys.stderr)}
    waits = Waits()
    for stream, block in blocks(found, follow=follow, on_status=lambda status: waits.tell([status])):
        outputs[stream].write(block)
        outputs[stream].flush()
    if not follow and not any(path.exists() for path in (found.paths.stdout, found.paths.stderr)):
        note(f"{found.run_id} has not printed anything yet; `hpc-llm status {found.run_id}` says where it is")
