"""Parts of a model that compute otherwise: in fewer passes over memory packed weights, LoRA's layers, the loss, small operations;
in fp8, where the method says so, the linear layers.

The plan says which are wanted. A part that this model does not have in a form that is known here stays as it was made, and a
sentence says so. Names, parameters and what is saved are the same with them and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.kernels.adapters import fuse_adapters
from hpc_llm.worker.kernels.dequantization import fuse_dequantization
from hpc_llm.worker.kernels.fp8 import fp8_layers
from hpc_llm.worker.kernels.head_loss import HeadLoss, find_head
from hpc_llm.worker.kernels.layers import fuse_layers
from hpc_llm.worker.model.shapes import layers_of


@dataclass
class Fused:
    """What of a model is fused."""

    parts: list[str] = field(default_factory=list)
    """As the plan calls them: `fused_dequantization`, `fused_lora`, `fused_loss`, `fused_layers`, `fp8`."""
    head_loss: HeadLoss | None = None
    """Computes the loss in place of the model's logits."""
    sentences: list[str] = field(default_factory=list)
    """One for each part that the plan wants and that runs as it was made, or in some of its layers."""
    undo: Callable[[], None] = lambda: None
    """Takes back what is not the model's alone."""


def fuse(model: Any, plan: Plan, device: torch.device) -> Fused:
    """Fuse what the plan wants fused in `model`, which is ready to train on `device`."""
    found, wanted = Fused(), plan.engine
    if plan.model.fp8:
        _note(found, "fp8", (True, fp8_layers(layers_of(model), device)))
    if wanted.fused_dequantization:
        _note(found, "fused_dequantization", fuse_dequantization(model, device))
    if wanted.fused_lora:
        _note(found, "fused_lora", fuse_adapters(model))
    if wanted.fused_loss:
        head, lack = find_head(model)
        found.head_loss = HeadLoss(head) if head is not None else None
        _note(found, "fused_loss", (head is not None, lack and f"The loss is computed from whole logits, for {lack}."))
    if wanted.fused_layers:
        is_fused, sentence, found.undo = fuse_layers(model, device)
        _note(found, "fused_layers", (is_fused, sentence))
    return found


def _note(found: Fused, part: str, done: tuple[bool, str | None]) -> None:
    is_fused, sentence = done
    if is_fused:
        found.parts.append(part)
    if sentence is not None:
        found.sentences.append(sentence)
