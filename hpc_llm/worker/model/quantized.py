"""A model whose linear layers are quantized: made one weight at a time, or loaded so."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.parts import Quantization
from hpc_llm.worker.compiled_late import compiled_when_called
from hpc_llm.worker.model.shapes import DTYPES, begun, fill
from hpc_llm.worker.model.weights import load_checkpoint

KINDS = ("nf4", "fp4", "int8")


def quantized_model(plan: Plan, device: torch.device, split: bool) -> Any:
    """A model whose linear layers, the output head apart, are quantized and frozen; the rest trains."""
    quantization = plan.model.quantization
    if quantization is None or quantization.kind not in KINDS:
        raise WorkerError(unknown_name("quantization kind", str(quantization and quantization.kind), KINDS))
    # Split among ranks, packed weights travel as the training's own type: what gathers them takes one type at a time.
    storage = DTYPES[plan.model.precision] if split else torch.uint8
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
    model = begun(plan, DTYPES[plan.model.precision], device)
    head = model.get_output_embeddings()
    # T5 turns activations into the type of this weight, which packed ones have for their bytes alone.
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    linears = [
        (name, module)
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module is not head and name.rpartition(".")[2] not in kept
    ]
    spread = float(getattr(model.config, "initializer_range", 0.02))
    for name, linear in linears:
        compute = _compute_dtype(plan, quantization)
        parent, _, own = name.rpartition(".")
        setattr(
            model.get_submodule(parent), own, _quantized_linear(linear, quantization, compute, storage, spread, device)
        )
    fill(model, device)
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
    """A frozen quantized layer in place of `linear`; where that has no values yet they are drawn at random."""
    with compiled_when_called():
        import bitsandbytes as bnb

    shape = (linear.in_features, linear.out_features)
    has_bias = linear.bias is not None
    weight = linear.weight.detach()
    if weight.is_meta:
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


def _mark_quantized(model: Any, quantization: Quantization) -> None:
    """Say what PEFT asks for before it wraps quantized layers."""
    in_8bit = quantization.kind == "int8"
    model.is_loaded_in_8bit = in_8bit
    model.is_loaded_in_4bit = not in_8bit


def _compute_dtype(plan: Plan, quantization: Quantization) -> torch.dtype:
    return DTYPES[quantization.compute_dtype or plan.model.precision]
