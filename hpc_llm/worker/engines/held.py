"""How many bytes tensors take, on the GPU and on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

Bytes = dict[str, int]
"""`device` and `host`; without a GPU all of it is on the host."""


def bytes_of(tensors: Iterable[Any]) -> Bytes:
    """What these tensors take on this rank, each counted once; of one that is split among ranks, the part that is here."""
    found = {"device": 0, "host": 0}
    seen: set[tuple[str, int]] = set()
    for tensor in tensors:
        own = local(tensor)
        key = (str(own.device), own.data_ptr())
        if own.numel() and key not in seen:
            seen.add(key)
            found["host" if own.device.type == "cpu" else "device"] += own.numel() * own.element_size()
    return found


def local(tensor: Any) -> torch.Tensor:
    """The part on this rank of a tensor that PyTorch or DeepSpeed has split."""
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    own: torch.Tensor = getattr(tensor, "ds_tensor", tensor)
    return own.detach()


def parameter_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """The parameters of a model, and the scales of quantized ones."""
    for parameter in model.parameters():
        yield parameter
        state: Any = getattr(parameter, "quant_state", None)
        while state is not None:
            yield from (each for each in (state.absmax, state.code) if each is not None)
            state = state.state2


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> Iterator[torch.Tensor]:
    """The optimizer's states, and the copies that it steps in place of the model's own parameters."""
    own = {(id(parameter), local(parameter).data_ptr()) for parameter in model.parameters()}
    ids, places = {identity for identity, _ in own}, {place for _, place in own}
    groups = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for each in dict.fromkeys((*groups, *optimizer.state)):
        if id(each) not in ids and local(each).data_ptr() not in places:
            yield each
    for states in optimizer.state.values():
        yield from tensors_in(states)


def tensors_in(values: Mapping[Any, Any]) -> Iterator[torch.Tensor]:
    """All tensors of a mapping of mappings."""
    for value in values.values():
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            yield from tensors_in(value)
