"""What the loss works in where it is computed with the head, a part of the places at a time (`worker/kernels/head_loss.py`)."""

from __future__ import annotations

from hpc_llm.estimating.case import Case

PLACES = 1024
"""Whose logits are there at a time."""


def fused_loss_bytes(case: Case) -> int:
    """Besides the gradient of the last hidden states, which is made in the forward pass and kept: the larger of its two passes."""
    if case.plan.engine.cuda_graph and has_parts(case):
        return max(
            _forward(case) + _weight(case, 4 + case.width), _backward(case)
        )  # no block of the one serves the other
    return max(_forward(case), _backward(case))


def has_parts(case: Case) -> bool:
    """Whether the places are more than one part."""
    return case.tokens > PLACES


def _forward(case: Case) -> int:
    """Logits, the same in fp32 and their logarithms; from the second part on beside those of the part before and the head's gradients."""
    logits = min(case.tokens, PLACES) * case.sizes.vocabulary
    if not has_parts(case):
        return (case.width + 8) * logits
    return 2 * (case.width + 4) * logits + 4 * logits + _weight(case, 4 + case.width)


def _backward(case: Case) -> int:
    """Each gradient is made in fp32, multiplied and rounded; one after the other."""
    saved, copied = (4, 4) if has_parts(case) else (case.width, 8)
    hidden = case.tokens * case.sizes.hidden
    of_hidden = _weight(case, saved) + (8 + case.width) * hidden
    of_weight = _weight(case, saved + copied + case.width) + case.width * hidden
    return max(of_hidden, of_weight)


def _weight(case: Case, each: int) -> int:
    """So many bytes for each number of the head, where it trains."""
    return each * case.sizes.embedding if case.trains_root else 0
