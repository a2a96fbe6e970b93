"""hpc-llm render: print the exact batch script."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import JsonOption, RunOptions, with_run_options
from hpc_llm.cli.output import note, print_json

if TYPE_CHECKING:
    from hpc_llm.batch import Batch


def register(app: typer.Typer) -> None:
    app.command("render")(render)


@with_run_options
def render(
    options: RunOptions,
    explain: Annotated[bool, typer.Option("--explain", help="Show where every line comes from.")] = False,
    diff: Annotated[
        Optional[str], typer.Option(metavar="RUN|CLUSTER", help="Show the difference to a run's script or another cluster's.")
    ] = None,
    output: Annotated[Optional[Path], typer.Option("-o", "--output", metavar="FILE", help="Write the script there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the exact batch script that submit would send; only the run id is decided at submission."""
    from hpc_llm.cli.request import batches

    found = list(batches(options, preview=True))
    for batch in found:
        tell_notices(batch)
    if as_json:
        documents = [_document(batch, i) for batch in found for i in range(len(batch.distinct_scripts))]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    if diff is not None:
        text = "".join(_difference(batch, diff, options) for batch in found)
    elif explain:
        text = "\n".join(script.explained() for batch in found for script in batch.distinct_scripts)
    else:
        text = "\n".join(script.text for batch in found for script in batch.distinct_scripts)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        note(f"written to {output}")


def tell_notices(batch: Batch) -> None:
    """Say what the plan changed on its own, once each."""
    said: dict[str, None] = {}
    for planned in batch.planned:
        said.update(dict.fromkeys(planned.notices))
    if batch.cluster.scheduler == "auto" and batch.planned[0].plan.scheduler == "local":
        said["sbatch is not on PATH here, so the script is for bash"] = None
    for sentence in said:
        note(f"cluster {batch.cluster.name}: {sentence}")


def _document(batch: Batch, index: int) -> dict[str, Any]:
    script = batch.scripts[index]
    plans = [p.plan.to_dict() for p in batch.planned]
    document = {
        "script": script.text,
        "plan": plans[index],
        "origins": [{"line": n, "origin": origin} for n, origin in enumerate(script.origins, start=1)],
    }
    return {**document, "plans": plans} if batch.array else document


def _difference(batch: Batch, other: str, options: RunOptions) -> str:
    """A unified diff between this script and that of a run or of the same request on another cluster."""
    from dataclasses import replace

    from hpc_llm.cli.request import batches
    from hpc_llm.cli.runs import find_run
    from hpc_llm.cluster import cluster_names

    if other in cluster_names():
        theirs = next(iter(batches(replace(options, cluster=other), preview=True))).scripts[0].text
    else:
        theirs = find_run(other, options.logs).script.read_text(encoding="utf-8")
    ours = batch.scripts[0].text
    lines = difflib.unified_diff(theirs.splitlines(True), ours.splitlines(True), other, "this script")
    return "".join(lines)
