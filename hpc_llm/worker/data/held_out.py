"""What is never trained on: the last tenth of a text's sequences, or made-up ones that no rank draws in training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.data.share import Share, share_of
from hpc_llm.worker.ranks import Ranks

MADE_UP_SEQUENCES = 64
"""Enough for a mean within 1 % on the Markov chain."""
_SHARE = 10
_NOBODY = -1
"""Index of a share that is no rank's."""


def held_out_count(sequences: int) -> int:
    """How many of a text's sequences are held out: a tenth, and one at least.

    >>> held_out_count(100), held_out_count(5)
    (10, 1)
    """
    return max(sequences // _SHARE, 1)


def nobodys_share() -> Share:
    """Samples that no rank trains on, however many ranks there are."""
    return Share(_NOBODY, 1)


def passes(sequences: Iterator[torch.Tensor], plan: Plan, ranks: Ranks, device: torch.device) -> Iterator[Batch | None]:
    """This rank's batches of a finite row of sequences, each in one group once; None where others have more than it has."""
    share, size = share_of(plan, ranks), plan.batch.micro_batch_size
    while round_of_all := list(itertools.islice(sequences, size * share.count)):
        mine = round_of_all[share.index :: share.count]
        yield {"input_ids": torch.stack(mine).to(device)} if mine else None
