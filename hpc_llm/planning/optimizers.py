"""The optimizers that a method can name, and who builds each. Standard library only: planning and worker read the same."""

from __future__ import annotations

from typing import Literal, get_args

OptimizerName = Literal["AdamW", "Adam", "AdamW8bit", "Adam8bit", "PagedAdamW8bit"]
"""AdamW and Adam are DeepSpeed's; the others keep their moments in 8 bits and are bitsandbytes'. The paged one moves them
to the host when the GPU is full."""

NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)

OF_DEEPSPEED = ("AdamW", "Adam")
"""Built by DeepSpeed from its config; all others are classes of bitsandbytes.optim of the same name."""


def bitsandbytes_name(name: str) -> str | None:
    """bitsandbytes' class of that name, in whatever case; None where it has none that is known here."""
    known = {each.lower(): each for each in NAMES if each not in OF_DEEPSPEED}
    return known.get(name.lower())
