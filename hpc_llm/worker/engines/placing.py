"""What a rank holds, set in its place in the whole model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch.distributed as dist
from torch import nn

from hpc_llm.worker.engines.layout import ALL_APART, WHOLE, Copies, Layout
from hpc_llm.worker.engines.pieces import Place
from hpc_llm.worker.model.flops import full_shape
from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.split import slice_of


def placed(layout: Layout, module: nn.Module, tensor: TensorGroup | None) -> Layout:
    """`layout`, of an engine that knows nothing of the ranks with which this one shares layers."""
    copies = _copies(layout, tensor) if layout.copies == ALL_APART else layout.copies
    if tensor is None:
        return replace(layout, copies=copies)
    shares = f"{layout.shares}, {tensor.size} of which share each layer"
    return replace(layout, shares=shares, copies=copies, places=dict(_places(module, tensor)))


def _copies(layout: Layout, tensor: TensorGroup | None) -> Copies:
    if layout.shares != WHOLE:
        return Copies(name=dist.get_rank())
    if tensor is None:
        return Copies(dist.get_rank(), dist.get_world_size())
    return Copies(tensor.data_rank, tensor.data_size, tensor.rank)


def _places(module: nn.Module, tensor: TensorGroup) -> Iterator[tuple[str, Place]]:
    for name, parameter in module.named_parameters():
        how, shape = slice_of(parameter), full_shape(parameter)
        if how is None:
            yield name, Place(is_written=tensor.rank == 0)
        elif how.dim == 0:
            yield name, Place(tensor.rank * math.prod(shape) // tensor.size)
        else:
            width = shape[how.dim] // tensor.size
            yield name, Place(tensor.rank * width, width, shape[how.dim])
