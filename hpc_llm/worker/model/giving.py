"""Values of a model that the first rank has and gives to the others, a module at a time: no other host holds the whole model.

A shared file system serves one reader well, not hundreds. The first rank leaves a checkpoint in its files, mapped into memory, and in the
type in which it is written: another one would be a copy of all of it, twice as large in fp32. What takes a value turns it into its own type.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.model.shapes import fills_from_meta, whole
from hpc_llm.worker.model.weights import load_checkpoint, stored_in

_STORED = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def source(plan: Plan, dtype: torch.dtype) -> Mapping[str, torch.Tensor] | None:
    """The values that the first rank has on its host, nothing on the others; None where each module makes its own."""
    if plan.model.weights != "checkpoint" and fills_from_meta(plan):
        return None
    if dist.get_rank() != 0:
        return {}
    model: nn.Module = (
        _loaded(plan, dtype) if plan.model.weights == "checkpoint" else whole(plan, dtype, torch.device("cpu"))
    )
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def _loaded(plan: Plan, dtype: torch.dtype) -> nn.Module:
    """The checkpoint as it is written; in `dtype` where its files do not tell."""
    stored = _STORED.get(stored_in(plan.model.name) or "", dtype)
    model: nn.Module = load_checkpoint(plan.model.name, stored, alone=True)
    return model


def take(module: nn.Module, name: str, given: Mapping[str, torch.Tensor] | None) -> None:
    """Fill the module's own parameters and buffers with what the first rank has. Collective."""
    if given is None:
        return
    for own, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        value = given.get(f"{name}.{own}" if name else own)
        if value is not None:
            tensor.copy_(value)
        dist.broadcast(tensor, src=0)
