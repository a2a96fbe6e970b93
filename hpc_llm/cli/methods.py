"""hpc-llm methods: list the methods, or show one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hpc_llm.cli.options import JsonOption
from hpc_llm.cli.output import note, print_facts, print_json, print_table

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hpc_llm.planning.method import Method


def register(app: typer.Typer) -> None:
    app.command("methods")(methods)


def methods(
    name: Annotated[
        Optional[str], typer.Argument(metavar="[NAME]", help="Method to show, or letters as in z3+o+r.")
    ] = None,
    deepspeed_json: Annotated[bool, typer.Option("--deepspeed-json", help="Print the plain DeepSpeed config.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the methods, or show one; letters compose: z1 z2 z3, o offload, r recompute (r0.25 of a quarter of the layers, rauto of as few as fit), f FlashAttention, fp8 products in fp8, q quantized base, l or lora LoRA, ql or qlora QLoRA."""
    from hpc_llm.api import catalogue
    from hpc_llm.errors import RequestError

    if name is None:
        if deepspeed_json:
            valid = ", ".join(one.name for one in catalogue.methods())
            raise RequestError(f"--deepspeed-json needs a method. Valid: {valid}.")
        _list(as_json)
        return
    method = catalogue.method(name)
    if deepspeed_json:
        print_json(catalogue.deepspeed_config(method))
    elif as_json:
        print_json(method.model_dump(mode="json", by_alias=True))
    else:
        _show(method)


def _list(as_json: bool) -> None:
    from hpc_llm.api import catalogue

    found = catalogue.methods()
    if as_json:
        print_json([m.model_dump(mode="json", by_alias=True) for m in found])
        return
    print_table([[m.name, m.letters, m.description] for m in found], ["method", "letters", "what"])
    note("compose others from letters with +, as in z3+o+r+f, q+r, z2+lora, qlora+r")


def _show(method: Method) -> None:
    from hpc_llm.api import catalogue

    print_facts(
        [
            ("method", f"{method.name}: {method.description}"),
            ("letters", method.letters),
            ("precision", "bf16 where the GPU has it, else fp16" if method.precision == "auto" else method.precision),
            ("recompute", catalogue.recomputed(method)),
            ("attention", method.attention),
            ("fp8", "the products of the decoder's linear layers" if method.fp8 else "no"),
            ("quantization", _in_words(method.quantization)),
            ("LoRA", _in_words(method.peft)),
            ("optimizer", ", ".join(f"{key} {value}" for key, value in _optimizer(method).items())),
            (
                "learning rate",
                "chosen for the width of the model" if method.optimizer.lr is None else method.optimizer.lr,
            ),
            ("engine", _first_of(method.engine)),
            ("source", method.source),
            ("DeepSpeed", "see below; the batch sizes are computed from the plan"),
        ]
    )
    print_json(method.deepspeed)


def _optimizer(method: Method) -> dict[str, Any]:
    said = method.optimizer.model_dump(exclude_none=True)
    return {**said, "type": _first_of(said["type"])}


def _in_words(block: BaseModel | None) -> str:
    """What a block of the method says, as its file has it."""
    said = block.model_dump(exclude_none=True) if block else {}
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in said.items()}
    return ", ".join(f"{key} {value}" for key, value in words.items()) or "no"


def _first_of(names: str | Sequence[str]) -> str:
    return names if isinstance(names, str) else f"the first that suits of {', '.join(names)}"
