"""The loss from the last hidden states, the head's product made for a part of the places at a time: never are all logits there.

With a vocabulary of 128 000 the logits of a batch and their gradients are its largest tensors, and are read and written in
several passes. Here a part of them is made, its loss and its gradients are taken, and the next part takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from hpc_llm.worker.data.batch import MASKED, Batch, model_inputs, targets_of

_PLACES = 1024
"""At a time: enough to fill a GPU."""
_NUMBERS = 2**22
"""Of a gradient that are multiplied at a time: in fp32 they take 16 MiB, the whole gradient of a head twice its own size."""
_KNOWN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Models whose logits are what the head makes of the last hidden states, and nothing else."""


def find_head(model: Any) -> tuple[nn.Linear | None, str | None]:
    """The head of a model whose loss can be computed so, or why there is none, in a clause."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind = type(inner).__name__.removeprefix("FSDP")  # what is split is called so
    if kind not in _KNOWN:
        return None, f"nothing is known of the head of a {kind}"
    if getattr(inner.config, "final_logit_softcapping", None):
        return None, "the model bounds its logits"
    head = inner.get_output_embeddings()
    if type(head) is not nn.Linear or head.bias is not None:
        return None, f"the head is a {type(head).__name__}, and no plain matrix"
    return head, None


class HeadLoss:
    """Computes the summed loss of batches with the head of a model."""

    def __init__(self, head: nn.Linear) -> None:
        self._head = head

    def __call__(self, model: Any, batch: Batch) -> torch.Tensor:
        """Sum over the predicted tokens of `batch`, nats, fp32; `model` may be wrapped."""
        with self._passing_on():
            hidden = model(**model_inputs(batch), use_cache=False).logits
        return summed_loss_of_hidden(hidden.flatten(0, 1), self._head.weight, targets_of(batch).flatten())

    @contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Inside, the head gives what it gets: so the model's own program runs, whatever wraps it."""
        self._head.forward = _unchanged
        try:
            yield
        finally:
            del self._head.forward


def _unchanged(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def summed_loss_of_hidden(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the targets that are not MASKED, summed, in nats and fp32; 0 where all are masked.

    Shapes: hidden (places, width), weight (vocabulary, width), targets (places,) int64.
    """
    learns = torch.is_grad_enabled() and (hidden.requires_grad, weight.requires_grad)
    found: torch.Tensor = _SummedLoss.apply(hidden, weight, targets, learns or (False, False))
    return found


class _SummedLoss(torch.autograd.Function):  # type: ignore[misc]
    """Gradients are made with the loss, while the logits of a part are there, and multiplied by what comes from above later."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, targets: Any, learns: tuple[bool, bool]) -> Any:
        of_hidden = torch.empty_like(hidden) if learns[0] else None
        of_weight: Any = None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        is_one = len(hidden) <= _PLACES
        for begin in range(0, len(hidden), _PLACES):
            rows, wanted = hidden[begin : begin + _PLACES], targets[begin : begin + _PLACES]
            loss, logs = _log_probabilities(rows, weight, wanted)
            total += loss
            if not any(learns):
                continue
            change = _change(logs, wanted).to(hidden.dtype)
            del logs  # the gradient of the head is larger, and comes now
            if of_hidden is not None:
                torch.mm(change, weight, out=of_hidden[begin : begin + _PLACES])
            if learns[1]:
                part = change.t() @ rows
                # Parts are summed in fp32: in bf16 a later one would be rounded away.
                of_weight = part if is_one else part.float() if of_weight is None else of_weight.add_(part)
        ctx.save_for_backward(*(each for each in (of_hidden, of_weight) if each is not None))
        ctx.learns, ctx.dtype = (of_hidden is not None, of_weight is not None), weight.dtype
        return total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Any) -> Any:
        saved, factor = iter(ctx.saved_tensors), gradients[0]
        found = [_multiplied(next(saved), factor, ctx.dtype) if is_there else None for is_there in ctx.learns]
        return *found, None, None


def _multiplied(saved: torch.Tensor, factor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The product in `dtype`, in the memory of `saved` where that is of it: torch refuses to go back through it again then.

    The factor of fp16 can be larger than its largest number: the product is made in fp32.
    """
    found = saved if saved.dtype == dtype else torch.empty_like(saved, dtype=dtype)
    rows = max(1, _NUMBERS // saved.shape[-1])
    for part, into in zip(saved.split(rows), found.split(rows), strict=True):
        torch.mul(part.float(), factor, out=into)
    return found


def _log_probabilities(
    rows: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of these places, summed, and the logarithm of each probability, fp32."""
    logs = torch.log_softmax(rows @ weight.t(), dim=-1, dtype=torch.float32)
    chosen = logs.gather(1, targets.clamp(min=0).unsqueeze(1)).squeeze(1)
    return -chosen.masked_fill(targets == MASKED, 0.0).sum(), logs


def _change(logs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How the loss changes with each logit, written over `logs`: the probability, less 1 for the target, 0 where it is masked."""
    place = targets.clamp(min=0).unsqueeze(1)
    change = logs.exp_()
    change.scatter_add_(1, place, torch.full_like(place, -1, dtype=torch.float32))
    return change.masked_fill_((targets == MASKED).unsqueeze(1), 0.0)
