"""A model whose layers ranks share: which part of which matrix a rank has, and how the whole is put together again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.planning.model import LEAD_OUT, MODEL_TYPES
from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.layers import SummedLinear, WholeLinear, share_input

_LEAD_IN = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Matrices of whose rows, and so of whose outputs, each rank has some; of those of LEAD_OUT it has columns."""
_ROWS, _COLUMNS = 0, 1
_MARK = "hpc_llm_slice"


@dataclass(frozen=True)
class Slice:
    """How a parameter of this rank lies in the whole one."""

    dim: int
    """The dimension of which each rank has an equal part."""
    tensor: TensorGroup

    def whole_shape(self, own: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the whole, of which a rank has `own`."""
        return tuple(size * self.tensor.size if dim == self.dim else size for dim, size in enumerate(own))


def slice_of(parameter: nn.Parameter) -> Slice | None:
    """What is marked of a parameter; None where each rank has all of it."""
    found: Slice | None = getattr(parameter, _MARK, None)
    return found


def split(model: Any, tensor: TensorGroup) -> None:
    """Leave this rank its part of each layer that is still whole, adapters included, and let it share the inputs.

    Raises WorkerError where nothing of the model is known to be shared so.
    """
    for name, module in model.named_modules():
        split_module(name, module, tensor)
    share_inputs(model, tensor)


def split_module(name: str, module: nn.Module, tensor: TensorGroup) -> None:
    """Leave this rank its part of a linear layer of that name, once; other modules stay whole.

    Its `in_features` and `out_features` stay those of the whole, so that an adapter which is put on it is made whole first:
    it begins with the values that it has on a rank alone.
    """
    role = _role(name)
    if role is None or not isinstance(module, nn.Linear) or hasattr(module, _MARK):
        return
    kind, dim = role
    if kind is not None:
        module.__class__ = kind
        module.tensor = tensor
    slices: dict[str, Slice] = {}
    if dim is not None:
        slices["weight"] = Slice(dim, tensor)
        if dim == _ROWS and module.bias is not None:
            slices["bias"] = Slice(dim, tensor)
    for own, how in slices.items():
        setattr(module, own, _own_part(getattr(module, own), how))
    setattr(module, _MARK, slices)


def _role(name: str) -> tuple[type[nn.Linear] | None, int | None] | None:
    """What becomes of a linear layer: another class, and the dimension that is split. None where it stays as it is."""
    path = name.split(".")
    layer = next((part for part in path if part in (*_LEAD_IN, *LEAD_OUT)), None)
    if layer is None:
        return None
    leads_in = layer in _LEAD_IN
    if "lora_A" in path:  # narrow, and so it is whole before rows and summed behind columns
        return (WholeLinear, None) if leads_in else (SummedLinear, _COLUMNS)
    if "lora_B" in path:
        return (None, _ROWS) if leads_in else (None, None)
    return (None, _ROWS) if leads_in else (SummedLinear, _COLUMNS)


def _own_part(whole: nn.Parameter, how: Slice) -> nn.Parameter:
    if whole.shape[how.dim] % how.tensor.size:
        raise WorkerError(
            f"a matrix of {' x '.join(map(str, whole.shape))} cannot be shared by {how.tensor.size} ranks: choose --tensor-parallel "
            "that divides heads, key-value heads and the width of the MLP."
        )
    own = whole.detach().chunk(how.tensor.size, how.dim)[how.tensor.rank]
    return nn.Parameter(own.clone(memory_format=torch.contiguous_format), requires_grad=whole.requires_grad)


def share_inputs(model: Any, tensor: TensorGroup) -> None:
    """Let the ranks sum the gradients of what leads into the parts that they share. Raises WorkerError where none are known."""
    family = model.config.model_type
    if family not in MODEL_TYPES:
        raise WorkerError(
            f"--tensor-parallel: how ranks may share the layers of {family} is not known, only of {', '.join(MODEL_TYPES)}. Leave it out."
        )
    for block in model.modules():
        if any(name in _LEAD_IN for name, _ in block.named_children()):
            share_input(block, tensor)
    mark(model)


def mark(model: nn.Module) -> None:
    """Note at each parameter how it lies in the whole one; an engine that puts others in their place notes it again."""
    for module in model.modules():
        slices: dict[str, Slice] = getattr(module, _MARK, {})
        for name, how in slices.items():
            setattr(getattr(module, name), _MARK, how)


def gathered(own: torch.Tensor, how: Slice | None) -> torch.Tensor:
    """The whole of what each rank has a part of, on all of them. Collective where it is shared."""
    if how is None:
        return own
    parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(how.tensor.size)]
    dist.all_gather(parts, own.contiguous(), group=how.tensor.group)
    return torch.cat(parts, how.dim)


def copies(parameters: Iterable[nn.Parameter], tensor: TensorGroup) -> list[int]:
    """On how many of the ranks that share layers the very same of each parameter is."""
    return [tensor.size if slice_of(each) is None else 1 for each in parameters]
