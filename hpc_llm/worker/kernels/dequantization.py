"""Weights packed in 4 bits, unpacked in one pass over memory: the scales of double quantization are unpacked on the way.

bitsandbytes makes the scales of a weight whole in two kernels before it unpacks the weight, which happens twice a step for each.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from hpc_llm.worker.kernels.compiling import failing, one_line

_TOLERANCE = 2**-7
"""Relative, between our numbers and bitsandbytes': a scale that was multiplied and added at once may round to a neighbour in bf16."""

_SCALES = 256
"""That share one scale of their own where they are quantized too."""


def unpacked(
    packed: torch.Tensor, code: torch.Tensor, scales: torch.Tensor, nested: tuple[torch.Tensor, ...], block: int, dtype: torch.dtype
) -> torch.Tensor:  # fmt: skip
    """The numbers of a weight, in one row.

    Shapes: packed (numbers / 2,) uint8, the first of a pair in the high bits; code (16,); scales (numbers / block,), the largest
    magnitude of each block, or, where `nested` is (code (256,), scales of scales, offset), its place in that code.
    """
    if nested:
        code_of_scales, wide, offset = nested
        row = torch.arange(len(scales), device=scales.device) // _SCALES
        scales = code_of_scales[scales.int()] * wide[row] + offset
    pairs = packed.view(-1, block // 2)
    numbers = torch.stack((code[(pairs >> 4).int()], code[(pairs & 15).int()]), dim=-1)
    return (numbers * scales[:, None, None]).to(dtype).view(-1)


def fuse_dequantization(model: nn.Module, device: torch.device) -> tuple[bool, str | None]:
    """Let the layers that are packed in 4 bits be unpacked so: whether any are, and a sentence where they cannot be."""
    layers = [module for module in model.modules() if _is_known(module)]
    if not layers:
        return False, "Packed weights are unpacked by bitsandbytes: none is packed as it is known here."
    try:
        with failing(), torch.no_grad():
            compiled = torch.compile(unpacked, dynamic=False)
            lack = _differs(layers[0], compiled)
    except Exception as error:  # whatever a compiler may raise, or the one that it calls
        lack = f"nothing can be compiled here: {one_line(error)}"
    if lack is not None:
        return False, f"Packed weights are unpacked by bitsandbytes, for {lack}."
    for layer in layers:
        layer.unpack = lambda weight: _of_weight(weight, compiled)
        layer.forward = MethodType(_forward, layer)
    return True, None


def _differs(layer: Any, compiled: Any) -> str | None:
    """Whether our numbers of a layer are others than bitsandbytes', in a clause: its package may pack in another way one day."""
    from bitsandbytes import functional

    theirs = functional.dequantize_4bit(layer.weight.data.view(-1, 1), layer.weight.quant_state).float()
    difference = (_of_weight(layer.weight, compiled).float() - theirs).abs()
    is_near = bool((difference <= theirs.abs() * _TOLERANCE).all())
    return None if is_near else "this release packs them in another way than is known here"


def _of_weight(weight: Any, compiled: Any) -> torch.Tensor:
    state = weight.quant_state
    nested = (state.state2.code, state.state2.absmax, state.offset) if state.nested else ()
    row: torch.Tensor = compiled(weight.data.view(-1), state.code, state.absmax, nested, state.blocksize, state.dtype)
    return row.view(state.shape)


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """x W^T with the gradient of x alone; W is unpacked again for it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Any) -> torch.Tensor:
        ctx.layer = layer
        return nn.functional.linear(x, layer.unpack(layer.weight), layer.bias)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] @ ctx.layer.unpack(ctx.layer.weight), None


def _forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    is_other = torch.is_autocast_enabled() or x.dtype != self.weight.quant_state.dtype or x.numel() == x.shape[-1]
    if is_other or (self.compute_dtype or x.dtype) != x.dtype or (self.bias is not None and self.bias.dtype != x.dtype):
        other: torch.Tensor = type(self).forward(self, x)
        return other
    found: torch.Tensor = _Linear.apply(x, self)
    return found


def _is_known(module: Any) -> bool:
    """Whether it is a frozen linear layer that bitsandbytes packs in 4 bits, in whole blocks, in its own order of bytes."""
    state = getattr(getattr(module, "weight", None), "quant_state", None)
    if state is None or not isinstance(module, nn.Linear) or getattr(state, "quant_type", None) not in ("nf4", "fp4"):
        return False
    shape = (module.out_features, module.in_features)
    if tuple(state.shape) != shape or shape[0] * shape[1] % state.blocksize or module.weight.dtype != torch.uint8:
        return False
    if module.bias is not None and module.bias.requires_grad:
        return False
    return not state.nested or (state.state2.blocksize == _SCALES and not state.state2.nested)
