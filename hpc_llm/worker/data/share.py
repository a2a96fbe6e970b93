"""Which sequences a rank trains on.

Ranks that share a batch (one data-parallel group) get the same sequences, no two groups get the same row of prepared data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.ranks import Ranks


@dataclass(frozen=True)
class Share:
    """Which samples a rank trains on: those of group `index` of `count`."""

    index: int
    count: int


def share_of(plan: Plan, ranks: Ranks) -> Share:
    """The samples of this rank."""
    return Share(ranks.rank * plan.parallel.data // ranks.world_size, plan.parallel.data)


def own_part(sequences: Iterator[torch.Tensor], share: Share, used: int) -> Iterator[torch.Tensor]:
    """The group's made-up sequences behind its part of the first `used` of all groups.

    With as many groups as before these are exactly the ones that were to follow; another number of groups may draw some again.
    """
    return itertools.islice(sequences, used // share.count, None)
