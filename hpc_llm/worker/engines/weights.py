"""The weights of a model in training as a Hugging Face folder: safetensors, config and tokenizer, which transformers loads.

The folder holds one whole plain model: what LoRA has learned is added to the matrices, quantized matrices are written as
the values that they stand for. So every engine and every other program can start from it.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.corpus.key import BYTES, tokenizer_digest
from hpc_llm.errors import WorkerError
from hpc_llm.planning.checkpoint import has_tokenizer
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import is_checkpoint
from hpc_llm.records.models import write_manifest
from hpc_llm.worker.engines.engine import Engine
from hpc_llm.worker.engines.whole_folder import whole_folder
from hpc_llm.worker.model.byte_tokenizer import save_byte_tokenizer
from hpc_llm.worker.model.shapes import DTYPES, skeleton

_BASE = ".base_layer"
"""PEFT puts the layer that it adapts under this name."""


def save_weights(engine: Engine, plan: Plan, folder: Path, *, replace: bool = False) -> None:
    """Write the weights to `folder`, in the plan's precision; what is there stays, but for `replace`. Collective.

    The first rank holds the whole model in its host's memory meanwhile.
    Raises WorkerError on every rank where it could not be written; there is no `folder` then.
    """
    with whole_folder(folder, replace=replace) as made:
        made.finish = lambda: write_manifest(made.path)
        weights = _gathered(engine, plan)
        if dist.get_rank() == 0:
            _write_model(plan, weights, made.path)


def _gathered(engine: Engine, plan: Plan, *, adapted: bool = True) -> dict[str, torch.Tensor]:
    """Every weight on the first rank, nothing on the others. Collective."""
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in whole_weights(engine, adapted=adapted):
        if dist.get_rank() == 0:
            weights[name] = tensor.to(DTYPES[plan.model.precision]).to("cpu", copy=True).contiguous()
    return weights


def _write_model(plan: Plan, weights: dict[str, torch.Tensor], folder: Path) -> None:
    skeleton(plan, DTYPES[plan.model.precision]).save_pretrained(folder, state_dict=weights)
    _copy_beside(plan, folder)


def save_adapter(engine: Engine, plan: Plan, folder: Path, *, replace: bool = False) -> None:
    """Write what PEFT has added to the model, and nothing of the model, in PEFT's own layout. Collective.

    Where the model's weights were drawn at random they are in no other place: then `base` in the folder holds it.
    Raises WorkerError on every rank where it could not be written; there is no `folder` then.
    """
    is_random = plan.model.weights == "random"
    with whole_folder(folder, replace=replace) as made:
        made.finish = lambda: write_manifest(made.path)
        first = dist.get_rank() == 0
        added: dict[str, torch.Tensor] = {}
        for name, parameter in engine.module.named_parameters():
            if parameter.requires_grad:
                whole = engine.whole(parameter)
                if first:
                    added[name] = whole.to("cpu", copy=True).contiguous()
        base = _gathered(engine, plan, adapted=False) if is_random else {}
        if first:
            _write_adapter(
                engine.module, plan, str(folder / "base") if is_random else plan.model.name, added, made.path
            )
        if first and is_random:
            _write_model(plan, base, made.path / "base")


def _write_adapter(model: Any, plan: Plan, base: str, added: dict[str, torch.Tensor], folder: Path) -> None:
    """`base` is the folder of the model that the adapter is for."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    found = get_peft_model_state_dict(model, state_dict=added, save_embedding_layers=False)
    if len(found) != len(added) or not all(tensor.numel() for tensor in found.values()):
        raise WorkerError(f"of {len(added)} trained parameters PEFT writes {len(found)}, so nothing is written.")
    save_file(found, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    how = copy.copy(model.peft_config["default"])
    how.inference_mode, how.base_model_name_or_path = True, base
    how.save_pretrained(folder)
    _copy_beside(plan, folder)


def whole_weights(engine: Engine, *, adapted: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and whole value of each weight under transformers' own names, tied ones once. Collective: walk it to its end.

    What adapters have learned is in them, but for `adapted=False`.
    """
    model = engine.module.get_base_model() if hasattr(engine.module, "get_base_model") else engine.module
    adapters = {f"{name}{_BASE}": module for name, module in model.named_modules() if hasattr(module, "base_layer")}
    seen: set[int] = set()
    for name, module in model.named_modules():
        if ".lora_" in name or name.endswith(".lora_"):
            continue
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            value = _plain_values(module, parameter, engine.whole(parameter))
            if adapted and name in adapters and own == "weight":
                value = value.float() + _learned(adapters[name], engine)
            yield f"{name}.{own}".replace(f"{_BASE}.", ".").removeprefix("."), value


def _plain_values(module: nn.Module, parameter: nn.Parameter, whole: torch.Tensor) -> torch.Tensor:
    """What bitsandbytes' packed weights stand for; anything else as it is."""
    kind = type(parameter).__name__
    if kind == "Params4bit" or getattr(parameter, "quant_state", None) is not None:
        from bitsandbytes.functional import dequantize_4bit

        packed: torch.Tensor = dequantize_4bit(whole, parameter.quant_state)
        return packed
    if kind == "Int8Params":
        own: Any = parameter
        state: Any = getattr(module, "state", None)
        scale = own.SCB if own.SCB is not None else state.SCB
        return whole.float() * scale.float().view(-1, 1).to(whole.device) / 127
    return whole


def _learned(layer: Any, engine: Engine) -> torch.Tensor:
    """What the adapters of a layer add to its matrix."""
    added: Any = 0.0
    for adapter in layer.active_adapters:
        if adapter not in layer.lora_A:
            raise WorkerError(f"the adapter of a {type(layer).__name__} cannot be added to its weights.")
        down, up = (engine.whole(part[adapter].weight).float() for part in (layer.lora_A, layer.lora_B))
        added = added + up @ down * layer.scaling[adapter]
    whole: torch.Tensor = added
    return whole.T if getattr(layer, "fan_in_fan_out", False) else whole


def _copy_beside(plan: Plan, folder: Path) -> None:
    """The tokenizer, and the settings for generating text of the folder that the model came from."""
    source = Path(plan.model.name)
    if plan.training.data and tokenizer_digest(plan.model.name) == BYTES:
        save_byte_tokenizer(folder)
    if not is_checkpoint(plan.model.name):
        return
    if has_tokenizer(source):
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        tokenizer.save_pretrained(folder)
    if (source / "generation_config.json").is_file():
        shutil.copyfile(source / "generation_config.json", folder / "generation_config.json")
