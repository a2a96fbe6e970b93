"""The optimizers that a method can name, and who builds each. Standard library only: planning and worker read the same."""

from __future__ import annotations

from typing import Literal, get_args

OptimizerName = Literal[
    "AdamW", "Adam", "AdamW8bit", "Adam8bit", "PagedAdamW8bit", "PagedAdam8bit", "PagedAdamW32bit", "AdamWBF16"
]
"""AdamW and Adam are DeepSpeed's, or torch's. Those with 8bit keep their moments in 8 bits, paged ones move them to the host when
the GPU is full, and both are bitsandbytes'. AdamWBF16 keeps moments and weights in bf16, with no copies in fp32, and is ours."""

NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)

OF_DEEPSPEED = ("AdamW", "Adam")
"""Built by DeepSpeed from its config."""

PURE_BF16 = ("AdamWBF16",)
"""Without fp32 copies of what trains; all others are classes of bitsandbytes.optim of the same name."""


def bitsandbytes_name(name: str) -> str | None:
    """bitsandbytes' class of that name, in whatever case; None where it has none that is known here."""
    known = {each.lower(): each for each in NAMES if each not in (*OF_DEEPSPEED, *PURE_BF16)}
    return known.get(name.lower())
