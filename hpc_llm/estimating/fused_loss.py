"""What the loss works in where it is computed with the head, a part of the places at a time (`worker/kernels/head_loss.py`)."""

from __future__ import annotations

from hpc_llm.estimating.case import Case

PLACES = 1024
"""Whose logits are there at a time."""
NUMBERS = 2**22
"""Of a gradient that are in fp32 at a time."""


def fused_loss_bytes(case: Case) -> int:
    """Besides the gradient of the last hidden states, which is made in the forward pass and kept: the larger of its two passes."""
    return max(_forward(case), backward_bytes(case))


def has_parts(case: Case) -> bool:
    """Whether the places are more than one part."""
    return case.tokens > PLACES


def _forward(case: Case) -> int:
    """Logits, the same in fp32 and their logarithms; from the second part on beside the gradients of the logits of the part before and
    those of the head. A second part that is the last has fewer places."""
    in_fp32 = 4 if case.width < 4 else 0
    first, second = (
        min(max(places, 0), PLACES) * case.sizes.vocabulary for places in (case.tokens, case.tokens - PLACES)
    )
    each = case.width + in_fp32 + 4
    return max(each * first, case.width * first + each * second + _weight(case, 4 + case.width) if second else 0)


def backward_bytes(case: Case) -> int:
    """Gradients are multiplied where they lie, a part of them at a time in fp32; the head's sum of several parts is rounded to another place."""
    saved = 4 + case.width if has_parts(case) and case.width < 4 else case.width
    return _weight(case, saved) + case.width * case.tokens * case.sizes.hidden + 4 * NUMBERS


def _weight(case: Case, each: int) -> int:
    """So many bytes for each number of the head, where it trains."""
    return each * case.sizes.embedding if case.trains_root else 0
