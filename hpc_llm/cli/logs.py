"""hpc-llm logs: the output of a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpc_llm.cli.options import LogsOption
from hpc_llm.cli.output import note
from hpc_llm.cli.progress import Waits
from hpc_llm.cli.terminal import Output
from hpc_llm.errors import RequestError
from hpc_llm.records.files import open_regular

if TYPE_CHECKING:
    from hpc_llm.records.run import RunPaths

POLL_S = 0.5
CHECK_S = 5.0
"""How often the scheduler is asked whether the run is over, while nothing new is printed."""
BLOCK = 1 << 16


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
    from hpc_llm.api.find import find_run

    found = find_run(run, logs)
    streams = [(found.stdout, Output(sys.stdout)), (found.stderr, Output(sys.stderr))]
    places = [_copy(path, out, 0) for path, out in streams]
    if not follow:
        if not any(path.exists() for path, _ in streams):
            note(f"{found.run_id} has not printed anything yet; `hpc-llm status {found.run_id}` says where it is")
        return
    waits = Waits()
    while True:
        over = _is_over(found, waits)
        deadline = time.monotonic() + CHECK_S
        while time.monotonic() < deadline:
            before = places
            places = [_copy(path, out, place) for (path, out), place in zip(streams, places, strict=True)]
            if over and places == before:
                return
            time.sleep(POLL_S)


def _copy(path: Path, out: Output, place: int) -> int:
    """Copy what `path` holds beyond `place`; returns the new place."""
    try:
        file = open_regular(path)
        if file is None:
            raise RequestError(f"{path} is no regular file: it holds no output.")
        with file:
            file.seek(place)
            while block := file.read(BLOCK):
                out.write(block)
                place += len(block)
    except FileNotFoundError:
        return place
    out.flush()
    return place


def _is_over(run: RunPaths, waits: Waits) -> bool:
    from hpc_llm.api.handle import Run

    if run.exit.exists():
        return True
    now = Run(run.root).status()
    waits.tell([now])
    return now.is_over
