"""The model of a plan, whole or split as DeepSpeed splits it: a shape with random values, or a checkpoint.

No rank holds more than it must: under ZeRO-3 each layer is split among the ranks as soon as it exists; a quantized
preset is made and quantized one weight at a time; everything else is built in its low precision on its device.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.model.capacity import refuse_what_never_fits
from hpc_llm.worker.model.giving import source, take
from hpc_llm.worker.model.prepare import prepare
from hpc_llm.worker.model.quantized import quantized_model
from hpc_llm.worker.model.shapes import DTYPES, begun, fill, from_shape, skeleton
from hpc_llm.worker.model.weights import load_checkpoint
from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.split import split, split_module


def build_model(plan: Plan, config: Mapping[str, Any], device: torch.device, tensor: TensorGroup | None = None) -> Any:
    """The model of `plan`, ready for training, with attention, quantization, LoRA and recompute applied, on its device.

    With `config`, DeepSpeed's, its parameters are split among the ranks as that says; with `tensor` this rank has its part of
    each layer alone, and DeepSpeed splits that later.
    """
    refuse_what_never_fits(plan)
    try:
        if tensor is None:
            return prepare(load_model(plan, config, device), plan)
        model = prepare(_shared_model(plan, device, tensor), plan)
        split(model, tensor)
        return model
    except ImportError as error:
        raise WorkerError(f"the plan's model needs a package that is missing here: {error}.") from error


def _shared_model(plan: Plan, device: torch.device, tensor: TensorGroup) -> Any:
    """The model with this rank's part of each layer: none is there whole on its device but the one that is made."""
    dtype = DTYPES[plan.model.precision]
    model, before = skeleton(plan, dtype), torch.get_rng_state()
    given = source(plan, dtype)

    def own_part(name: str, module: nn.Module) -> None:
        take(module, name, given)
        split_module(name, module, tensor)

    fill(model, device, own_part)
    if (
        given is not None
    ):  # what the first rank alone has drawn, and what was drawn in vain, must not change the adapters
        torch.manual_seed(plan.workload.seed)
        torch.set_rng_state(before)
    return model


def load_model(plan: Plan, config: Mapping[str, Any], device: torch.device) -> Any:
    """The model itself, as transformers makes or loads it, on its device."""
    stage3 = is_split(config)
    return quantized_model(plan, device, stage3) if plan.model.quantization else _plain_model(plan, config, device)


def _plain_model(plan: Plan, config: Mapping[str, Any], device: torch.device) -> Any:
    stage3 = is_split(config)
    loads = plan.model.weights == "checkpoint"
    if not stage3 and not loads:
        model = begun(plan, DTYPES[plan.model.precision], device)
        fill(model, device)
        return model
    dtype = DTYPES[plan.model.precision]
    with zero3_init(config, enabled=stage3):
        if not loads:
            return from_shape(plan, dtype)
        where = None if stage3 else _device_map(device)
        model = load_checkpoint(plan.model.name, dtype, device_map=where, attn_implementation=plan.model.attention)
    if not stage3 and where is None:
        model.to(device)  # a tensor after the other, none of which stays on the host
        model.tie_weights()
    return model


def is_split(config: Mapping[str, Any]) -> bool:
    return (config.get("zero_optimization") or {}).get("stage") == 3


def _device_map(device: torch.device) -> dict[str, torch.device] | None:
    """Load straight onto the GPU where accelerate is there to do it; else by way of the host."""
    loads_directly = device.type == "cuda" and importlib.util.find_spec("accelerate") is not None
    return {"": device} if loads_directly else None


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
