"""A Hugging Face causal language model for training: a shape initialised at random, or a checkpoint.

No rank holds more than it must: under ZeRO-3 each layer is split among the ranks as soon as it exists; a quantized
preset is made and quantized one weight at a time; everything else is built in its low precision on its device.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import Architecture, architecture, is_checkpoint
from hpc_llm.planning.parts import Lora, Quantization
from hpc_llm.worker.flops import full_shape
from hpc_llm.worker.weights import load_checkpoint, load_config

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

KINDS = ("nf4", "fp4", "int8")


def build_model(plan: Plan, config: Mapping[str, Any], device: torch.device) -> Any:
    """The model of `plan` with attention, quantization, LoRA and recompute applied, on its device.

    With `config`, DeepSpeed's, its parameters are split among the ranks as that says.
    """
    stage3 = _is_split(config)
    try:
        model = (
            _quantized_model(plan, device, stage3) if plan.model.quantization else _plain_model(plan, config, device)
        )
    except ImportError as error:
        raise WorkerError(f"the plan's model needs a package that is missing here: {error}.") from error
    model.config.use_cache = False
    if plan.model.peft is not None:
        model = _with_lora(model, plan.model.peft)
    if plan.model.recompute:
        recompute(model)
    model.train()
    return model


def hf_config(arch: Architecture) -> Any:
    """Hugging Face's config object of a preset."""
    from transformers import AutoConfig

    return AutoConfig.for_model(arch.model_type, **arch.config_values())


@contextmanager
def zero3_init(config: Mapping[str, Any], enabled: bool) -> Iterator[None]:
    """Inside, transformers splits every new layer among the ranks as DeepSpeed's `config` says."""
    if not enabled:
        yield
        return
    from transformers.integrations import deepspeed as integration

    switch = _Zero3Switch(dict(config))  # transformers holds it weakly: it must live as long as the block
    integration.set_hf_deepspeed_config(switch)
    try:
        yield
    finally:
        integration.unset_hf_deepspeed_config()


class _Zero3Switch:
    """What transformers asks of its HfDeepSpeedConfig, which itself cannot be built without accelerate."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def is_zero3(self) -> bool:
        return True


def _plain_model(plan: Plan, config: Mapping[str, Any], device: torch.device) -> Any:
    from transformers import AutoModelForCausalLM

    stage3 = _is_split(config)
    loads = plan.model.weights == "checkpoint"
    if not stage3 and not loads:
        model = skeleton(plan, DTYPES[plan.model.precision])
        _fill(model, device)
        return model
    how = {"dtype": DTYPES[plan.model.precision], "attn_implementation": plan.model.attention}
    with zero3_init(config, enabled=stage3):
        if not loads:
            return AutoModelForCausalLM.from_config(_shape(plan), **how)
        return load_checkpoint(plan.model.name, device_map=None if stage3 else _device_map(device), **how)


def _is_split(config: Mapping[str, Any]) -> bool:
    return (config.get("zero_optimization") or {}).get("stage") == 3


def _shape(plan: Plan) -> Any:
    """Hugging Face's config object of the plan's model."""
    return load_config(plan.model.name) if is_checkpoint(plan.model.name) else hf_config(architecture(plan.model.name))


def skeleton(plan: Plan, dtype: torch.dtype) -> Any:
    """The plan's model on the meta device: shapes without memory."""
    from transformers import AutoModelForCausalLM

    shape = _shape(plan)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation=plan.model.attention)


def _device_map(device: torch.device) -> dict[str, torch.device] | None:
    """Load straight onto the GPU where accelerate is there to do it; else by way of the host."""
    loads_directly = device.type == "cuda" and importlib.util.find_spec("accelerate") is not None
    return {"": device} if loads_directly else None


def _quantized_model(plan: Plan, device: torch.device, stage3: bool) -> Any:
    """A model whose linear layers, the output head apart, are quantized and frozen; the rest trains."""
    quantization = plan.model.quantization
    if quantization is None or quantization.kind not in KINDS:
        raise WorkerError(unknown_name("quantization kind", str(quantization and quantization.kind), KINDS))
    # Split among ranks, packed weights travel as the training's own type: DeepSpeed gathers one type at a time.
    storage = DTYPES[plan.model.precision] if stage3 else torch.uint8
    if plan.model.weights == "checkpoint":
        return _quantized_checkpoint(plan, quantization, storage, device)
    return _quantized_shape(plan, quantization, storage, device)


def _quantized_checkpoint(plan: Plan, quantization: Quantization, storage: torch.dtype, device: torch.device) -> Any:
    from transformers import BitsAndBytesConfig

    kind = quantization.kind
    if kind == "int8":
        how = BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    else:
        how = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=kind,
            bnb_4bit_use_double_quant=quantization.double_quant,
            bnb_4bit_compute_dtype=_compute_dtype(plan, quantization),
            bnb_4bit_quant_storage=storage,
        )
    return load_checkpoint(
        plan.model.name,
        dtype=DTYPES[plan.model.precision],
        attn_implementation=plan.model.attention,
        quantization_config=how,
        device_map={"": device},
    )


def _quantized_shape(plan: Plan, quantization: Quantization, storage: torch.dtype, device: torch.device) -> Any:
    model = skeleton(plan, DTYPES[plan.model.precision])
    head = model.get_output_embeddings()
    linears = [
        (name, module) for name, module in model.named_modules() if type(module) is nn.Linear and module is not head
    ]
    spread = float(model.config.initializer_range)
    for name, linear in linears:
        model.set_submodule(
            name, _quantized_linear(linear, quantization, _compute_dtype(plan, quantization), storage, spread, device)
        )
    _fill(model, device)
    _mark_quantized(model, quantization)
    return model


def _quantized_linear(
    linear: nn.Linear,
    quantization: Quantization,
    compute_dtype: torch.dtype,
    storage: torch.dtype,
    spread: float,
    device: torch.device,
) -> Any:
    """A frozen quantized layer in place of `linear` (which is on the meta device), its weights drawn at random."""
    import bitsandbytes as bnb

    shape = (linear.in_features, linear.out_features)
    has_bias = linear.bias is not None
    weight = torch.empty(linear.weight.shape, dtype=linear.weight.dtype, device=device).normal_(std=spread)
    if quantization.kind == "int8":
        layer = bnb.nn.Linear8bitLt(*shape, has_bias, has_fp16_weights=False, device="meta")
        layer.weight = bnb.nn.Int8Params(weight.cpu(), requires_grad=False, has_fp16_weights=False).to(device)
    else:
        double, kind = quantization.double_quant, quantization.kind
        layer = bnb.nn.Linear4bit(*shape, has_bias, compute_dtype, double, kind, storage, device="meta")
        empty = layer.weight
        layer.weight = bnb.nn.Params4bit(
            weight,
            requires_grad=False,
            compress_statistics=empty.compress_statistics,
            quant_type=empty.quant_type,
            quant_storage=empty.quant_storage,
            module=layer,
        ).to(device)
    if has_bias:
        layer.bias = nn.Parameter(torch.zeros(linear.out_features, dtype=linear.weight.dtype, device=device), False)
    return layer


def _fill(model: Any, device: torch.device) -> None:
    """Give what is still on the meta device its memory and its initial values.

    Inner modules come first, the order in which transformers initialises a model split by ZeRO-3.
    """
    with torch.no_grad():
        for _, module in inner_first(model):
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if any(tensor.is_meta for tensor in own):
                module.to_empty(device=device, recurse=False)
                model._init_weights(module)
    model.tie_weights()


def inner_first(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Each module with its name, those that it holds before itself."""
    for own, child in module.named_children():
        yield from inner_first(child, f"{name}.{own}" if name else own)
    yield name, module


def _mark_quantized(model: Any, quantization: Quantization) -> None:
    """Say what PEFT asks for before it wraps quantized layers."""
    in_8bit = quantization.kind == "int8"
    model.is_loaded_in_8bit = in_8bit
    model.is_loaded_in_4bit = not in_8bit


def _compute_dtype(plan: Plan, quantization: Quantization) -> torch.dtype:
    return DTYPES[quantization.compute_dtype or plan.model.precision]


def _with_lora(model: Any, peft: Lora) -> Any:
    if peft.kind != "lora":
        raise WorkerError(unknown_name("peft kind", peft.kind, ("lora",)))
    from peft import LoraConfig, get_peft_model

    how = LoraConfig(
        r=peft.r,
        lora_alpha=peft.alpha,
        lora_dropout=peft.dropout,
        target_modules=peft.target_modules,
        task_type="CAUSAL_LM",
    )
    # The adapters stay in the model's own precision: DeepSpeed keeps the fp32 copy and wants one type throughout.
    return get_peft_model(model, how, autocast_adapter_dtype=False)


def recompute(model: Any) -> None:
    """Recompute each decoder layer's activations in the backward pass instead of keeping them."""
    switch = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    switch({"use_reentrant": False})


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """(all, trainable) parameters of the whole model, however they are split or packed."""
    sizes = [(math.prod(full_shape(parameter)), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
