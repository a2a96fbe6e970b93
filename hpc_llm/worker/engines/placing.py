"""What a rank holds, set in its place in the whole model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch.distributed as dist
from torch import nn

from hpc_llm.worker.engines.layout import WHOLE, Copies, Layout
from hpc_llm.worker.engines.pieces import Place
from hpc_llm.worker.model.flops import full_shape
from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.split import slice_of


def placed(layout: Layout, module: nn.Module, tensor: TensorGroup | None) -> Layout:
    """`layout`, of an engine that knows nothing of the ranks with which this one shares layers."""
    alike = layout.shares == WHOLE
    if tensor is None:
        copies = Copies(dist.get_rank(), dist.get_world_size()) if alike else Copies(name=dist.get_rank())
        return replace(layout, copies=copies)
    return replace(
        layout,
        shares=f"{layout.shares}, {tensor.size} of which share each layer",
        copies=Copies(tensor.data_rank, tensor.data_size, tensor.rank) if alike else Copies(name=dist.get_rank()),
        places=dict(_places(module, tensor)),
    )


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
