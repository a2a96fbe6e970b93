"""Cross entropy of the predicted tokens, summed: who divides by how many tokens is decided where all of them are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from hpc_llm.worker.data.batch import MASKED, Batch, count_targets, targets_of


@dataclass(frozen=True)
class Loss:
    """What this rank's part of a step has lost."""

    total: torch.Tensor
    """Sum over the predicted tokens, nats, a scalar on the device."""
    targets: int | torch.Tensor
    """How many they are."""


def summed_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The sum, in fp32, over the predicted tokens of `batch`; 0 where all are masked."""
    return functional.cross_entropy(
        logits.float().flatten(0, 1), targets_of(batch).flatten(), ignore_index=MASKED, reduction="sum"
    )


def sum_targets(batches: Sequence[Batch]) -> int | torch.Tensor:
    """Predicted tokens of these batches."""
    return sum((count_targets(batch) for batch in batches), start=0)
