"""hpc-llm estimate: memory and time before anything is queued, and whether it fits."""

from __future__ import annotations

import typer

from hpc_llm.cli.asking import asked
from hpc_llm.cli.options import JsonOption, RunOptions, with_run_options
from hpc_llm.cli.output import print_json


def register(app: typer.Typer) -> None:
    app.command("estimate")(estimate)


@with_run_options
def estimate(options: RunOptions, as_json: JsonOption = False) -> None:
    """Say what a run needs of device, host and disk, and whether it fits; `--method all`, `--cluster all` rank what there is."""
    from hpc_llm.api.estimating import documents, estimates, is_ranking
    from hpc_llm.cli.estimate_text import one_screen, ranking

    request, places = asked(options)
    found = estimates(request, places)
    if as_json:
        shown = documents(found)
        print_json(shown[0] if len(shown) == 1 else shown)
    else:
        lines = one_screen(found[0]) if len(found) == 1 else ranking(found, ranked=is_ranking(request))
        typer.echo("\n".join(lines))
