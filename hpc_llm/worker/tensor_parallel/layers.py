"""What ranks that share a layer tell each other: sums of activations forward, sums of their gradients backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from hpc_llm.worker.tensor_parallel.group import TensorGroup


class _Shared(torch.autograd.Function):  # type: ignore[misc]
    """The same value, of which each rank computes something else: its gradients are summed."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _sum(gradients[0], ctx.group), None


class _Summed(torch.autograd.Function):  # type: ignore[misc]
    """The sum of what the ranks have; each addend changes it by as much as itself."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Any) -> torch.Tensor:
        return _sum(value, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def _sum(value: torch.Tensor, group: Any) -> torch.Tensor:
    total = value.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


class SummedLinear(nn.Linear):  # type: ignore[misc]
    """Has some columns of its matrix and gets so many of its inputs: the products of all ranks are summed."""

    tensor: TensorGroup

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = _Summed.apply(functional.linear(input, self.weight), self.tensor.group)
        return total if self.bias is None else total + self.bias


class WholeLinear(nn.Linear):  # type: ignore[misc]
    """Has its whole matrix before one of which each rank has some rows: the gradients of the ranks are summed."""

    tensor: TensorGroup

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else _Shared.apply(self.bias, self.tensor.group)
        return functional.linear(input, _Shared.apply(self.weight, self.tensor.group), bias)


def share_input(block: nn.Module, tensor: TensorGroup) -> None:
    """Let each rank compute its part of `block`, an attention or an MLP, from the same input."""

    def shared(_: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if given:
            return (_Shared.apply(given[0], tensor.group), *given[1:]), named
        return given, {**named, "hidden_states": _Shared.apply(named["hidden_states"], tensor.group)}

    block.register_forward_pre_hook(shared, with_kwargs=True)
