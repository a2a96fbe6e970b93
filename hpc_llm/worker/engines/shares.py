"""What a rank holds of parameters that are split among all: plain tensors, so that a step is a few calls and no wait of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.worker.engines.held import local


class Shares:
    """The own part of each parameter, in the memory of the parameter. An optimizer steps these."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._whole = list(parameters)
        self.parameters: list[torch.Tensor] = [local(parameter) for parameter in parameters]

    def collect(self) -> None:
        """Hand the gradients of the parameters on to their parts."""
        for whole, own in zip(self._whole, self.parameters, strict=True):
            own.grad = None if whole.grad is None else local(whole.grad)
            whole.grad = None


def clip_shares(
    shares: Sequence[torch.Tensor], largest: float, *, copies: Sequence[int] = (), group: Any = None
) -> torch.Tensor:
    """The norm of all gradients of the ranks of a group, on the device; they are made shorter where it is beyond `largest`, if that
    is not 0.

    `copies` says of each share on how many ranks of the group the same one is; left out, each is on one. Without a `group` it is of
    all ranks. Collective. The same number as torch's `clip_grad_norm_` of the whole gradients.
    """
    given = zip(shares, copies or [1] * len(shares), strict=True)
    known = [(share.grad, count) for share, count in given if share.grad is not None and share.grad.numel()]
    gradients = [gradient for gradient, _ in known]
    squares = torch.zeros((), dtype=torch.float32, device=shares[0].device)
    if gradients:
        norms = torch.stack(torch._foreach_norm(gradients)).float()
        squares = (norms.square() if not copies else norms.square() / norms.new_tensor([n for _, n in known])).sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt()
    if largest and gradients:
        torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1.0))
    return norm
