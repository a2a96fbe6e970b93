"""Runs that a document tells of, whose loss is no finite number at the end: what a log of theirs would show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpc_llm.causes.numerics import NAN_LOSS
from hpc_llm.parsing.losses import Losses
from hpc_llm.parsing.rows import Row, Step
from hpc_llm.records.run import Outcome


def hold_to_its_losses(row: Row, steps: Sequence[Step]) -> None:
    """Make a run INVALID whose last steps have no finite loss, and leave it the first and the last that are one.

    >>> row = Row(outcome="COMPLETED", loss_first=2.5, loss_last=math.nan)
    >>> hold_to_its_losses(row, [Step(step=1, loss=2.5), Step(step=2, loss=math.nan)])
    >>> row.outcome, row.outcome_reason, row.loss_last
    ('INVALID', 'the loss is not a finite number at step 2', 2.5)
    """
    told = [step for step in steps if step.loss is not None]
    losses = Losses()
    losses.count([_loss(step) for step in told], [step.step for step in told])
    if losses.ends_not_finite:
        row.loss_first, row.loss_last = losses.first, losses.last
        numbered = losses.not_finite_at is not None
        spoil(row, losses.reason(None, True) if numbered else None)


def spoil(row: Row, reason: str | None) -> None:
    """Say that the training came to nothing, whatever else the document says of its end."""
    row.outcome, row.cause, row.cause_confidence = Outcome.INVALID.value, NAN_LOSS.id, 0.9
    row.outcome_reason = row.invalid_reason = reason or "the loss is not a finite number"


def _loss(step: Step) -> float:
    """What the Trainer leaves out of its mean is told as 0.0, beside a gradient that is no number."""
    filtered = step.loss == 0.0 and step.grad_norm is not None and not math.isfinite(step.grad_norm)
    return math.nan if filtered else step.loss or 0.0
