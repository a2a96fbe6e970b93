"""The shape of a model, and what gives a shape that is on the meta device its memory and its first values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import Shape, architecture, is_checkpoint
from hpc_llm.worker.model.weights import attention_for, in_dtype, load_config, model_class, transformers_release

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def hf_config(arch: Shape) -> Any:
    """Hugging Face's config object of a preset."""
    from transformers import AutoConfig

    return AutoConfig.for_model(arch.model_type, **arch.config_values())


def model_config(plan: Plan) -> Any:
    """Hugging Face's config object of the plan's model."""
    return load_config(plan.model.name) if is_checkpoint(plan.model.name) else hf_config(architecture(plan.model.name))


def skeleton(plan: Plan, dtype: torch.dtype) -> Any:
    """The plan's model on the meta device: shapes without memory."""
    with torch.device("meta"):
        return from_shape(plan, dtype)


def fills_from_meta(plan: Plan) -> bool:
    """Whether transformers can give every module of the plan's model its first values later on, each by itself.

    Before 5 it leaves norms and buffers as they are; a T5's layers get theirs from what holds them.
    """
    return transformers_release() >= (5, 0) and not getattr(model_config(plan), "is_encoder_decoder", False)


def begun(plan: Plan, dtype: torch.dtype, device: torch.device) -> Any:
    """The plan's model for `fill`: on the meta device where it can be filled from there, else whole on its device."""
    return skeleton(plan, dtype) if fills_from_meta(plan) else whole(plan, dtype, device)


def whole(plan: Plan, dtype: torch.dtype, device: torch.device) -> Any:
    """The plan's model with random values, as transformers itself makes it."""
    with device:
        return from_shape(plan, dtype)


def from_shape(plan: Plan, dtype: torch.dtype) -> Any:
    """The plan's model without a checkpoint, on whatever device is torch's default."""
    shape = model_config(plan)
    how = {"attn_implementation": attention_for(shape, plan.model.attention), **in_dtype(dtype)}
    return model_class(shape).from_config(shape, **how)


def fill(
    model: Any, device: torch.device, filled: Callable[[str, nn.Module], None] = lambda name, module: None
) -> None:
    """Give what is still on the meta device its memory and its initial values; `filled` is called with each module then.

    Inner modules come first, the order in which transformers initialises a model split by ZeRO-3.
    """
    with torch.no_grad():
        for name, module in inner_first(model):
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if any(tensor.is_meta for tensor in own):
                module.to_empty(device=device, recurse=False)
                model._init_weights(module)
                filled(name, module)
    model.tie_weights()


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The layers that repeat, which hold nearly all parameters; each is split, gathered and given up as a whole."""
    wanted = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__.removeprefix("FSDP") in wanted:  # what FSDP2 splits is called so
            yield module


def rows_of_layers(model: nn.Module) -> Iterator[list[nn.Module]]:
    """The same layers, those together that follow each other: of an encoder and a decoder each has its own."""
    layers = set(layers_of(model))
    for parent in model.modules():
        row = [child for child in parent.children() if child in layers]
        if row:
            yield row


def inner_first(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Each module with its name, those that it holds before itself."""
    for own, child in module.named_children():
        yield from inner_first(child, f"{name}.{own}" if name else own)
    yield name, module
