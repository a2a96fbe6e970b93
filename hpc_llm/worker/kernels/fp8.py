"""Linear layers whose three products, of the forward pass and of both gradients, are made in fp8.

What enters a product is rounded to 8 bits before it: inputs and weights to e4m3, whose numbers are finer, gradients to e5m2,
whose range is wider. Each tensor has one scale, found anew each time, by which its largest value becomes the largest of its
type. Sums are made in fp32, and weights, their gradients and what comes out stay in bf16: nothing that is split, stepped or
saved changes. The rounding is composed of plain operations, which a compiler fuses into what is before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MethodType
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.worker.kernels.compiling import one_line

_MULTIPLE = 16
"""What widths and numbers of places have to be multiples of."""
_SMALLEST = 1e-30
"""Taken for the largest value of a tensor of nothing but zeros."""
_FINE, _WIDE = torch.float8_e4m3fn, torch.float8_e5m2
_ADVICE = "Leave fp8 out of the method."


def fp8_layers(layers: Iterable[nn.Module], device: torch.device) -> str | None:
    """Let the linear layers within `layers` multiply so; a sentence where some cannot.

    Raises WorkerError where none can: a run must not be called after what it does not do.
    """
    linears = [module for layer in layers for module in layer.modules() if type(module) is nn.Linear]
    taken = [one for one in linears if not (one.in_features % _MULTIPLE or one.out_features % _MULTIPLE)]
    if not taken:
        raise WorkerError(f"no linear layer of this model has widths that {_MULTIPLE} divides, as fp8 needs. {_ADVICE}")
    try:
        x = torch.ones(_MULTIPLE, _MULTIPLE, dtype=torch.bfloat16, device=device, requires_grad=True)
        _Product.apply(x, x).sum().backward()
    except Exception as error:  # whatever this release or its libraries raise where they lack it
        raise WorkerError(f"nothing can be multiplied in fp8 here: {one_line(error)}. {_ADVICE}") from error
    for one in taken:
        one.forward = MethodType(_forward, one)
    left = len(linears) - len(taken)
    return (
        f"{left} of {len(linears)} linear layers multiply in bf16, for fp8 needs widths that {_MULTIPLE} divides."
        if left
        else None
    )


def _forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(-1, x.shape[-1])
    places = rows.shape[0]
    if places % _MULTIPLE:  # the gradient of the weight sums over places: zeros add nothing
        rows = nn.functional.pad(rows, (0, 0, 0, -places % _MULTIPLE))
    found: torch.Tensor = _Product.apply(rows, self.weight)[:places].view(*x.shape[:-1], -1)
    return found if self.bias is None else found + self.bias


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """x W^T with both gradients. For its gradient W is rounded again: kept in 8 bits it would take half its memory once more."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x_scale, weight_scale = _scale(x, _FINE), _scale(weight, _FINE)
        rounded = _rounded(x, x_scale, _FINE)
        ctx.save_for_backward(rounded, x_scale, weight, weight_scale)
        return torch._scaled_mm(
            rounded,
            _rounded(weight, weight_scale, _FINE).t(),
            x_scale,
            weight_scale,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        x, x_scale, weight, weight_scale = ctx.saved_tensors
        kind, scale = gradients[0].dtype, _scale(gradients[0], _WIDE)
        above = _rounded(gradients[0], scale, _WIDE)
        turned = _rounded(weight, weight_scale, _FINE).t().contiguous()  # a GPU multiplies rows by rows alone
        of_x = torch._scaled_mm(above, turned.t(), scale, weight_scale, out_dtype=kind)
        of_weight = torch._scaled_mm(above.t().contiguous(), x.t().contiguous().t(), scale, x_scale, out_dtype=kind)
        return of_x, of_weight


def _scale(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """What the values of `x` are divided by."""
    return x.abs().amax().float().clamp(min=_SMALLEST) / torch.finfo(kind).max


def _rounded(x: torch.Tensor, scale: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """In rows; what is no finite number stays none, and shows in the loss."""
    most = torch.finfo(kind).max
    return (x.float() / scale).clamp(-most, most).to(kind).contiguous()
