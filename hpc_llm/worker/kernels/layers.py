"""Small operations of a decoder layer, each compiled into one kernel: norm, gated MLP, rotary positions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import nn

from hpc_llm.worker.kernels.compiling import failing, one_line

_FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""Whose modules compute as the functions below do; others of like name may not (a norm may add 1 to its weight)."""
_NORMS = tuple(f"{family}RMSNorm" for family in _FAMILIES)
_MLPS = tuple(f"{family}MLP" for family in _FAMILIES)
_ATTENTIONS = tuple(f"{family}Attention" for family in _FAMILIES)
_ROTARY = "apply_rotary_pos_emb"


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return nn.functional.silu(gate) * up


def turned(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of shape (batch, heads, places, width) with their positions."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _half_turned(q) * sin, k * cos + _half_turned(k) * sin


def _half_turned(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def fuse_layers(model: nn.Module, device: torch.device) -> tuple[bool, str | None, Callable[[], None]]:
    """Let the modules that are known compute so: whether any does, a sentence where none can, and what undoes it elsewhere."""
    modules = [module for module in model.modules() if type(module).__name__ in (*_NORMS, *_MLPS, *_ATTENTIONS)]
    if not modules:
        return False, f"The layers of a {type(model).__name__} run unfused: nothing is known of them.", lambda: None
    try:
        with failing():
            functions = _compiled(device, next(model.parameters()).dtype)
    except Exception as error:  # whatever a compiler may raise, or the one that it calls
        words = one_line(error)
        return (
            False,
            f"Norm, MLP and rotary positions run unfused, for they cannot be compiled here: {words}",
            lambda: None,
        )
    return True, None, _replace(modules, *functions)


def _replace(modules: Sequence[nn.Module], norm: Any, gate: Any, turn: Any) -> Callable[[], None]:
    libraries = {}
    for module in modules:
        kind = type(module)
        if kind.__name__ in _NORMS:
            _set_norm(module, norm)
        elif kind.__name__ in _MLPS:
            _set_mlp(module, gate)
        else:
            libraries[kind.__module__] = sys.modules[kind.__module__]
    undone = [_set_rotary(library, turn) for library in libraries.values()]

    def undo() -> None:
        for one in undone:
            one()

    return undo


def _compiled(device: torch.device, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    """The three functions compiled, and tried forward and backward. Raises what a compiler raises."""
    made = tuple(torch.compile(each, dynamic=False) for each in (rms_norm, gated, turned))
    if not dtype.is_floating_point:
        dtype = torch.bfloat16
    norm, gate, turn = made
    x = torch.ones(1, 2, 4, 8, dtype=dtype, device=device, requires_grad=True)
    weight = torch.ones(8, dtype=dtype, device=device, requires_grad=True)
    place = torch.ones(1, 4, 8, dtype=dtype, device=device)
    q, k = turn(x, x, place, place)
    (norm(x, weight, 1e-6).sum() + gate(x, x).sum() + q.sum() + k.sum()).backward()
    return norm, gate, turn


def _set_norm(module: Any, norm: Any) -> None:
    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = norm(hidden_states, self.weight, self.variance_epsilon)
        return found

    module.forward = MethodType(forward, module)


def _set_mlp(module: Any, gate: Any) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.down_proj(gate(self.gate_proj(x), self.up_proj(x)))
        return found

    if module.config.hidden_act == "silu":
        module.forward = MethodType(forward, module)


def _set_rotary(library: Any, turn: Any) -> Callable[[], None]:
    """Put the function into the library's module, where each attention looks for it; what takes it out again."""
    before = getattr(library, _ROTARY, None)
    if before is None:
        return lambda: None

    def fused(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        return before(q, k, cos, sin, *args, **kwargs) if args or kwargs else turn(q, k, cos, sin)

    setattr(library, _ROTARY, fused)
    return lambda: setattr(library, _ROTARY, before)
