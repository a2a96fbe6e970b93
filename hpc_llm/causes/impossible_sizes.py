"""Memory of a size that no machine has: what was wrong is the number, and none ran out."""

from __future__ import annotations

from hpc_llm.causes.cause import sign
from hpc_llm.text.out_of_memory import ASKED, asks_the_impossible

_LONGEST = 2000
"""Bytes of a line that are looked at: the size stands near the words."""
_REMEDY = (
    "where ranks waited in vain for each other before it, on whichever rank, look at that first: what they received in place of the others' data is no data, "
    "and a size that was read from it is none\n"
    "else follow the traceback to where the size comes from: a length that was read from a damaged file or checkpoint, a number that overflowed, or a shape with a factor too many\n"
    "an extension that was compiled for another GPU gives such sizes, too: build it again on the node, with TORCH_CUDA_ARCH_LIST for that GPU"
)


def is_possible(text: bytes, position: int) -> bool:
    """Whether the line at `position` asks for no more than a machine may have, as far as it says how much."""
    return not _is_impossible(text, position)


def _is_impossible(text: bytes, position: int) -> bool:
    start = text.rfind(b"\n", 0, position) + 1
    end = text.find(b"\n", position)
    line = text[max(start, position - _LONGEST) : min(end if end >= 0 else len(text), position + _LONGEST)]
    return asks_the_impossible(line.decode("utf-8", "replace"))


SIGNS = (
    sign(
        ASKED.literals,
        ASKED.pattern,
        where=_is_impossible,
        precedence=46,
        confidence=0.9,
        meaning=(
            "The program asked for more memory than any machine has, so the size itself was wrong, and no memory ran out: smaller batches, "
            "more partitioning or more GPUs change nothing."
        ),
        remedy=_REMEDY,
    ),
)
