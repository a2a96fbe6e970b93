"""Which ranks share each layer with this one, and which have the same part of it for other samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan


@dataclass(frozen=True)
class TensorGroup:
    """The ranks that share each layer are next to each other, so that they are on one node."""

    rank: int
    """Which part of each layer this rank has."""
    size: int
    group: Any
    """Of the ranks that share a layer."""
    data_rank: int
    """Which samples this rank trains on."""
    data_size: int
    data_group: Any
    """Of the ranks that have the same part."""


def join(plan: Plan) -> TensorGroup | None:
    """The groups of this rank; None where each rank has whole layers. Collective, behind the joining of all ranks.

    Raises WorkerError where the ranks that run cannot be divided so.
    """
    size, world, rank = plan.parallel.tensor, dist.get_world_size(), dist.get_rank()
    if size == 1:
        return None
    if world % size:
        raise WorkerError(f"{size} ranks are to share each layer, and {world} run: start a multiple of {size}.")
    place, part = divmod(rank, size)
    shared = [dist.new_group(list(range(first, first + size))) for first in range(0, world, size)]
    alike = [dist.new_group(list(range(first, world, size))) for first in range(size)]
    return TensorGroup(part, size, shared[place], place, world // size, alike[part])
