"""What an engine's checkpoint holds of this rank: weights by name, and the moments by name or packed as they are.

Moments in 8 bits are scaled by blocks of what a rank happens to hold. Cut anew they would have to be rounded anew, and the
training would be another one: they go on in the shares in which they were written, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.errors import WorkerError
from hpc_llm.planning.optimizers import OF_DEEPSPEED, bitsandbytes_name
from hpc_llm.records.digests import DigestedFile
from hpc_llm.worker.engines.layout import Layout, make_states
from hpc_llm.worker.engines.shards import read_shards, write_shard
from hpc_llm.worker.tensor_file import load_tensors


def write(layout: Layout, optimizer: str, folder: Path) -> None:
    """Write this rank's part."""
    packed = is_packed(optimizer)
    write_shard(layout, folder, dist.get_rank(), moments=not packed)
    if packed and layout.copies.own == 0:
        states = [{key: _on_host(value) for key, value in layout.state_of(one).items()} for one in layout.owners]
        with DigestedFile(_packed_file(layout, folder)) as file:
            torch.save(states, file)


def read(layout: Layout, optimizer: str, module: Any, folder: Path) -> None:
    """Take up what was written on any ranks."""
    packed = is_packed(optimizer)
    make_states(layout)
    read_shards(layout, module, folder, moments=not packed)
    if packed:
        found = load_tensors(_packed_file(layout, folder), f"the checkpoint {folder.parent}", "Go on from another one.")
        for owner, values in zip(layout.owners, found, strict=True):
            _take(layout.state_of(owner), values)


def is_packed(optimizer: str) -> bool:
    """Whether the optimizer of that name keeps its moments in 8 bits."""
    return bitsandbytes_name(optimizer) is not None and "8bit" in optimizer.lower()


def kind_of_moments(optimizer: str) -> str:
    """The same for optimizers that go on with each other's moments: Adam is AdamW in every engine."""
    return "AdamW" if optimizer in OF_DEEPSPEED else optimizer


def _packed_file(layout: Layout, folder: Path) -> Path:
    return folder / f"moments-{layout.copies.name}.pt"


def _on_host(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def _take(state: dict[str, Any], values: dict[str, Any]) -> None:
    """Put values into the optimizer's own tensors, which may lie in memory of a special kind."""
    for key, value in values.items():
        own = state.get(key)
        if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
            if own.shape != value.shape:
                raise WorkerError(f"the moments of the checkpoint ({key}) have other shapes than this release makes.")
            own.copy_(value)
        else:
            state[key] = value
