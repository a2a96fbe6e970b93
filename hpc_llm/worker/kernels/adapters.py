"""A frozen linear layer with its low-rank update as one function: the update is added where the product is made.

Composed of single operations, each such layer makes three tensors of the size of its output that nobody needs later (the
update, the scaled update, the sum), and as many again for the gradients.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class _Adapted(torch.autograd.Function):  # type: ignore[misc]
    """x W^T + scale (x A^T) B^T, with gradients for x, A and B. W is asked of its layer each time, for it may lie there packed."""

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Any, a: Any, b: Any, scale: float) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        low = rows @ a.t()
        weight, bias = frozen_weight(layer, x.dtype), layer.bias
        out = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        out.addmm_(low, b.t(), alpha=scale)
        ctx.save_for_backward(rows, low, a, b)
        ctx.layer, ctx.scale, ctx.shape = layer, scale, x.shape
        return out.view(*x.shape[:-1], out.shape[-1])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Any) -> Any:
        rows, low, a, b = ctx.saved_tensors
        above = gradients[0].reshape(-1, gradients[0].shape[-1])
        above_low = (above @ b).mul_(ctx.scale)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = above @ frozen_weight(ctx.layer, above.dtype)
            of_x = of_x.addmm_(above_low, a).view(ctx.shape)
        of_a = above_low.t() @ rows
        of_b = (above.t() @ low).mul_(ctx.scale)
        return of_x, None, of_a, of_b, None


def frozen_weight(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    """The layer's weight, unpacked where it is packed."""
    state = getattr(layer.weight, "quant_state", None)
    if state is None:
        whole: torch.Tensor = layer.weight
        return whole
    if hasattr(layer, "unpack"):
        fast: torch.Tensor = layer.unpack(layer.weight)
        return fast.to(dtype)
    from bitsandbytes import functional

    unpacked: torch.Tensor = functional.dequantize_4bit(layer.weight.data.view(-1, 1), state)
    return unpacked.to(dtype)


def fuse_adapters(model: nn.Module) -> tuple[bool, str | None]:
    """Let PEFT's plain LoRA layers compute so; whether any does, and a sentence where others do not."""
    adapted = [module for module in model.modules() if hasattr(module, "lora_A") and hasattr(module, "base_layer")]
    plain = [module for module in adapted if _is_plain(module)]
    for module in plain:
        module.forward = MethodType(_forward, module)
    left = len(adapted) - len(plain)
    sentence = (
        f"LoRA runs unfused in {left} of {len(adapted)} layers: they are not plain LoRA on a frozen linear layer."
    )
    return bool(plain), sentence if left or not adapted else None


def _forward(self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    name = self.active_adapters[0]
    a, b = self.lora_A[name].weight, self.lora_B[name].weight
    is_other = args or kwargs or self.disable_adapters or self.merged or len(self.active_adapters) != 1
    if is_other or not _is_of_one_type(self.base_layer, x, a):
        other: torch.Tensor = type(self).forward(self, x, *args, **kwargs)
        return other
    found: torch.Tensor = _Adapted.apply(x, self.base_layer, a, b, self.scaling[name])
    return found


def _is_of_one_type(base: Any, x: torch.Tensor, a: torch.Tensor) -> bool:
    """Whether nothing is converted on the way, as PEFT and bitsandbytes would do it."""
    computes_in = getattr(base, "compute_dtype", None) or a.dtype
    kinds = {x.dtype, a.dtype, computes_in}
    if getattr(base.weight, "quant_state", None) is None:
        kinds.add(base.weight.dtype)
    if base.bias is not None:
        kinds.add(base.bias.dtype)
    return len(kinds) == 1 and not torch.is_autocast_enabled()


def _is_plain(module: Any) -> bool:
    """Whether it is one adapter without dropout, bias or variant on a frozen linear layer of which we know the weight."""
    if len(module.active_adapters) != 1 or module.active_adapters[0] not in module.lora_A:
        return False
    name, base = module.active_adapters[0], module.base_layer
    return (
        _is_known(base)
        and not base.weight.requires_grad
        and (base.bias is None or not base.bias.requires_grad)
        and isinstance(module.lora_dropout[name], nn.Identity)
        and module.lora_A[name].bias is None
        and module.lora_B[name].bias is None
        and not getattr(module, "use_dora", {}).get(name, False)
        and name not in getattr(module, "lora_variant", {})
    )


def _is_known(base: Any) -> bool:
    """A plain linear layer, or one of bitsandbytes' that is packed in 4 bits, its weight as (outputs, inputs)."""
    state = getattr(getattr(base, "weight", None), "quant_state", None)
    if state is None:
        return type(base) is nn.Linear
    return isinstance(base, nn.Linear) and tuple(state.shape) == (base.out_features, base.in_features)
