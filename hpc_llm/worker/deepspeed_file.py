"""The DeepSpeed config in a file that the flags of another project's program name. Standard library only, but for DeepSpeed's own hjson."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.deepspeed_schedules import own_rate
from hpc_llm.planning.parts import OptimizerSetup, Precision
from hpc_llm.records.files import read_regular, reason_of
from hpc_llm.text.json_text import DamagedRecordError, decoded

_OPTIMIZER = ("lr", "betas", "eps", "weight_decay")


def read_deepspeed_config(path: Path) -> dict[str, Any]:
    """A DeepSpeed config as DeepSpeed itself reads it: comments and commas too many are forgiven."""
    try:
        import hjson  # comes with DeepSpeed
    except ImportError:
        raise WorkerError(f"the DeepSpeed config {path} is of no use: DeepSpeed is not installed here.") from None
    try:
        config = hjson.loads(read_regular(path).decode("utf-8"))
        plain = decoded(json.dumps(config))
    except OSError as error:
        raise RequestError(f"the DeepSpeed config {path} cannot be read: {reason_of(error)}.") from None
    except RecursionError:
        raise RequestError(f"the DeepSpeed config {path} is nested too deep.") from None
    except DamagedRecordError as error:
        raise RequestError(f"the DeepSpeed config {path} cannot be read: {error}.") from None
    except ValueError as error:  # no UTF-8, no JSON, digits without end
        raise RequestError(f"the DeepSpeed config {path} is not JSON: {error}.") from None
    if not isinstance(plain, dict):
        raise RequestError(f"the DeepSpeed config {path} must hold one object.")
    return plain


def fit_batch(config: dict[str, Any], micro_batch_size: int, world_size: int) -> list[str]:
    """Compute the config's batch sizes for the ranks that are there, as published files are for 8 GPUs, 2 or one; say what changes.

    Raises RequestError where the config says no number of micro batches a step.
    """
    said = config.get("gradient_accumulation_steps", 1)
    if not isinstance(said, (int, float)) or said != said // 1 or said < 1:
        raise RequestError(f"gradient_accumulation_steps is {said!r}: a whole number of at least 1 is needed.")
    accumulation = int(said)
    batch = world_size * micro_batch_size * accumulation
    typed = config.get("train_batch_size", batch)
    config["train_batch_size"] = batch
    config["train_micro_batch_size_per_gpu"] = micro_batch_size
    config["gradient_accumulation_steps"] = accumulation
    return [] if typed == batch else [f"train_batch_size is {batch} for {world_size} ranks, not {typed}."]


def optimizer_of(config: Mapping[str, Any]) -> OptimizerSetup:
    """The optimizer that the config names, with the rate that its schedule gives it; what else it says of it DeepSpeed reads there itself."""
    block = config["optimizer"]
    parameters = block.get("params") or {}
    values = {key: parameters[key] for key in _OPTIMIZER if key in parameters}
    if (of_schedule := own_rate(config, None)) is not None:
        values["lr"], _ = of_schedule
    return OptimizerSetup(type=block.get("type", "AdamW"), **values)


def precision_of(config: Mapping[str, Any]) -> Precision:
    """That which the config's blocks turn on."""

    def is_on(*keys: str) -> bool:
        return any(is_enabled(config[key]) for key in keys if config.get(key) is not None)

    return "bf16" if is_on("bf16", "bfloat16") else "fp16" if is_on("fp16") else "fp32"


def is_enabled(block: Any) -> bool:
    """Whether a block, or a value that stands for one, turns something on."""
    if isinstance(block, dict):
        return bool(block.get("enable", block.get("enabled", True)))
    return bool(block)


def zero_letters(config: Mapping[str, Any]) -> list[str]:
    """What is split and offloaded, in the letters of methods; none where nothing is split."""
    zero = config.get("zero_optimization") or {}
    stage = int(zero.get("stage", 0))
    offload = any(
        ((zero.get(key) or {}).get("device") or "none") != "none" for key in ("offload_optimizer", "offload_param")
    )
    return [*([f"z{stage}"] if stage else []), *(["o"] if offload else [])]
