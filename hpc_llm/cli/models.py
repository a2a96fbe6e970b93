"""hpc-llm models: list the architecture presets, or show one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption
from hpc_llm.cli.output import print_facts, print_json, print_table


def register(app: typer.Typer) -> None:
    app.command("models")(models)


def models(
    name: Annotated[
        Optional[str], typer.Argument(metavar="[NAME]", help="Preset or checkpoint folder to show.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the architecture presets with their parameter counts, or show one."""
    from hpc_llm.planning.model import PRESETS, architecture, num_parameters

    if name is not None:
        shape = architecture(name)
        facts = {**asdict(shape), "num_parameters": num_parameters(shape)}
        print_json(facts) if as_json else print_facts(list(facts.items()))
        return
    if as_json:
        print_json([{**asdict(shape), "num_parameters": num_parameters(shape)} for shape in PRESETS.values()])
        return
    rows = [
        [s.name, f"{num_parameters(s):,}", s.num_hidden_layers, s.hidden_size, s.max_position_embeddings, s.model_type]
        for s in PRESETS.values()
    ]
    print_table(rows, ["model", "parameters", "layers", "hidden size", "longest sequence", "family"])
