"""hpc-llm estimate: memory and time before anything is queued, and whether it fits."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Optional

import typer

from hpc_llm.cli.asking import asked
from hpc_llm.cli.options import JsonOption, ManyOptions, RunOptions, with_run_options
from hpc_llm.cli.output import print_json
from hpc_llm.errors import RequestError


def register(app: typer.Typer) -> None:
    app.command("estimate", cls=ManyOptions)(estimate)


@with_run_options
def estimate(
    options: RunOptions,
    calibrate: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="PATH", help="Fit the speed of their clusters to finished runs, and keep it (repeatable)."
        ),
    ] = None,
    record: Annotated[
        Optional[list[str]],
        typer.Option(metavar="PATH", help="Print predicted beside measured step times of finished runs (repeatable)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run needs of device, host and disk, and whether it fits; `--method all`, `--cluster all` rank what there is."""
    if calibrate or record:
        _learn(calibrate or [], record or [], options, as_json)
        return
    from hpc_llm.api.estimating import documents, estimates
    from hpc_llm.cli.estimate_text import one_screen, ranking

    request, places = asked(options)
    found = estimates(request, places)
    if as_json:
        shown = documents(found)
        print_json(shown[0] if len(shown) == 1 else shown)
    else:
        lines = one_screen(found[0]) if len(found) == 1 else ranking(found)
        typer.echo("\n".join(lines))


def _learn(calibrate: list[str], record: list[str], options: RunOptions, as_json: bool) -> None:
    """What finished runs say of the machines, in place of an estimate."""
    from dataclasses import asdict

    from hpc_llm.api.calibrating import calibrate as fit
    from hpc_llm.api.calibrating import compared
    from hpc_llm.cli import time_text

    _refuse_run(options, "--calibrate" if calibrate else "--record")
    if calibrate and record:
        raise RequestError("--calibrate prints the record of what it fits: leave --record out.")
    if calibrate:
        made = fit(calibrate, logs=options.logs)
        lines = [line for one in made for line in time_text.calibrated(one)]
        document: object = {"calibrations": [one.to_dict() for one in made]}
    else:
        rows = compared(record, logs=options.logs)
        lines, document = list(time_text.record(rows)), {"runs": [asdict(row) for row in rows]}
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(lines))


def _refuse_run(options: RunOptions, flag: str) -> None:
    """No run is estimated where the record of others is asked for."""
    given = [one.name for one in fields(options) if one.name != "logs" and getattr(options, one.name)]
    if given:
        named = "a file" if given[0] == "experiment" else f"--{given[0].replace('_', '-')}"
        raise RequestError(f"{flag} reads finished runs and estimates none: leave {named} out.")
