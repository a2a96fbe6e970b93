"""hpc-llm models: list the architecture presets, or show one."""

from __future__ import annotations

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
    from hpc_llm.api import catalogue

    if name is not None:
        facts = catalogue.model(name)
        print_json(facts) if as_json else print_facts(list(facts.items()))
        return
    found = catalogue.models()
    if as_json:
        print_json(found)
        return
    shown = ("num_hidden_layers", "hidden_size", "max_position_embeddings", "model_type")
    rows = [[one["name"], f"{one['num_parameters']:,}", *(one[key] for key in shown)] for one in found]
    print_table(rows, ["model", "parameters", "layers", "hidden size", "longest sequence", "family"])
