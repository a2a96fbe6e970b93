"""DeepSpeed: its config adapted to the device, the process group, the engine."""

from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpc_llm.deepspeed_config import check_keys
from hpc_llm.errors import RequestError, WorkerError, unknown_name
from hpc_llm.experiment import Plan
from hpc_llm.optimizers import NAMES, bitsandbytes_name
from hpc_llm.worker.device import Toolchain, supports_bf16

COMPILE_ON_CPU = "HPC_LLM_COMPILE_CPU_OPS"
"""Set to 1 to let DeepSpeed compile its CPU operators where training runs on the CPU."""

_ADAM = ("adam", "adamw")


@dataclass(frozen=True)
class Adapted:
    """A DeepSpeed config that fits the device, and a sentence for each change."""

    config: dict[str, Any]
    sentences: tuple[str, ...]


def adapt_config(plan: Plan, device_type: str, toolchain: Toolchain, removed_keys: Mapping[str, str] = {}) -> Adapted:
    """The plan's DeepSpeed config as it can run on `device_type` (`cuda` or `cpu`) with the compilers there are.

    `removed_keys` are top-level keys that the installed DeepSpeed refuses, with its reason. Raises RequestError for a
    key that no DeepSpeed knows and WorkerError for what the device cannot do at all.
    """
    check_keys(plan.deepspeed, where="the plan's deepspeed")
    _check_batch(plan)
    config = copy.deepcopy(plan.deepspeed)
    sentences: list[str] = []
    if "quantize_training" in removed_keys and config.pop("quantize_training", None) is not None:
        sentences.append("The installed DeepSpeed has no quantize_training any more, so it is left out.")
    if device_type == "cpu":
        _refuse_fp16_on_cpu(plan, config)
        sentences += _unpin(config)
    sentences += _choose_adam(config, device_type, toolchain)
    if client_optimizer_name(plan) is not None:
        config.pop("optimizer", None)
        _allow_client_optimizer(config)
    return Adapted(config, tuple(sentences))


def _check_batch(plan: Plan) -> None:
    """Raise RequestError where the config's batch is not the plan's, as after an edit by hand."""
    planned = {
        "train_batch_size": plan.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.micro_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
    }
    computed = plan.data_parallel * plan.micro_batch_size * plan.gradient_accumulation_steps
    if plan.global_batch_size != computed or plan.data_parallel != plan.world_size:
        raise RequestError(
            f"the plan's global_batch_size is {plan.global_batch_size} for {plan.world_size} ranks in {plan.data_parallel} "
            f"groups with {plan.micro_batch_size} x {plan.gradient_accumulation_steps} sequences each: it must be "
            f"{plan.world_size * plan.micro_batch_size * plan.gradient_accumulation_steps}."
        )
    for key, value in planned.items():
        if plan.deepspeed.get(key, value) != value:
            raise RequestError(f"the plan's deepspeed: {key} is {plan.deepspeed[key]!r}, the plan says {value}.")


def zero_stage(config: Mapping[str, Any]) -> int:
    return int((config.get("zero_optimization") or {}).get("stage", 0))


def offload_device(config: Mapping[str, Any], what: str) -> str:
    """`cpu`, `nvme` or `none`; `what` is `offload_optimizer` or `offload_param`."""
    block = (config.get("zero_optimization") or {}).get(what) or {}
    return str(block.get("device") or "none")


def client_optimizer_name(plan: Plan) -> str | None:
    """bitsandbytes' class for the plan's optimizer; None where DeepSpeed builds it."""
    return bitsandbytes_name(str(plan.optimizer.get("type", "")))


def _refuse_fp16_on_cpu(plan: Plan, config: Mapping[str, Any]) -> None:
    if plan.precision == "fp16" or (config.get("fp16") or {}).get("enabled") is True:
        raise WorkerError(
            "DeepSpeed does not train in fp16 on the CPU: choose precision bf16 or fp32, or run on a GPU."
        )


def _unpin(config: dict[str, Any]) -> list[str]:
    """Page-locked memory serves copies to a GPU; without one DeepSpeed fails to get it."""
    changed = []
    for what in ("offload_optimizer", "offload_param"):
        block = (config.get("zero_optimization") or {}).get(what)
        if isinstance(block, dict) and block.get("pin_memory", True):
            block["pin_memory"] = False
            changed.append(what)
    return (
        [f"On the CPU there is no page-locked memory: pin_memory is off for {' and '.join(changed)}."]
        if changed
        else []
    )


def _choose_adam(config: dict[str, Any], device_type: str, toolchain: Toolchain) -> list[str]:
    """torch's Adam where DeepSpeed's own, which it compiles on first use, cannot or should not be built."""
    optimizer = config.get("optimizer") or {}
    if str(optimizer.get("type", "")).lower() not in _ADAM or optimizer.get("params", {}).get("torch_adam"):
        return []
    offloaded = offload_device(config, "offload_optimizer") != "none"
    if device_type == "cpu":
        if toolchain.host and os.environ.get(COMPILE_ON_CPU) == "1":
            return []
        reason = f"On the CPU torch's Adam runs in place of DeepSpeed's, so nothing is compiled ({COMPILE_ON_CPU}=1 compiles)."
    elif toolchain.host if offloaded else toolchain.device:
        return []
    else:
        missing = (
            "a C++ compiler with ninja" if offloaded or not toolchain.host else "the GPU's compiler (nvcc or hipcc)"
        )
        name = "DeepSpeedCPUAdam" if offloaded else "FusedAdam"
        reason = (
            f"torch's Adam runs in place of DeepSpeed's {name}, which needs {missing}: the speed is not the method's."
        )
    optimizer.setdefault("params", {})["torch_adam"] = True
    return [reason]


def _allow_client_optimizer(config: dict[str, Any]) -> None:
    """DeepSpeed wants to be told that an optimizer which it does not know is meant."""
    if zero_stage(config) > 0:
        config["zero_allow_untested_optimizer"] = True
    if offload_device(config, "offload_optimizer") != "none":
        config["zero_force_ds_cpu_optimizer"] = False


def removed_keys() -> Mapping[str, str]:
    """Top-level keys that the installed DeepSpeed refuses, with its reason."""
    from deepspeed.runtime import config

    return getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})


def emulated_bf16(plan: Plan, device: torch.device) -> list[str]:
    """A sentence where the GPU only emulates bf16; the run goes on, as the homework's did on V100."""
    if plan.precision != "bf16" or supports_bf16(device):
        return []
    return [f"{torch.cuda.get_device_name(device)} emulates bf16 and is slow at it: precision fp16 is made for it."]


def prepare_compiling(device: torch.device) -> None:
    """Let DeepSpeed compile its operators: for this GPU only, and with the ninja of this Python.

    torch, and images that ship it in TORCH_CUDA_ARCH_LIST, list architectures such as 10.0a, which DeepSpeed's builder
    cannot read, so a list from the environment is replaced. ninja installed beside the interpreter is not on PATH where
    the environment was not activated.
    """
    folder = os.path.dirname(sys.executable)
    if shutil.which("ninja") is None and shutil.which("ninja", path=folder):
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    if device.type == "cuda" and torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(device)
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"


def init_process_group(device: torch.device) -> None:
    """Join the other ranks. The ranks' environment must be applied before."""
    import deepspeed
    from deepspeed import ops

    if device.type == "cpu" and os.environ.get(COMPILE_ON_CPU) != "1":
        # DeepSpeed would compile its shared-memory collectives here, for a minute; gloo does the work as well.
        ops.__compatible_ops__ = {}
    deepspeed.init_distributed(verbose=False)


def start_engine(plan: Plan, model: nn.Module, config: dict[str, Any]) -> Any:
    """The DeepSpeed engine around `model`; only parameters that require a gradient are optimized."""
    import deepspeed

    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise WorkerError("no parameter of the model trains: look at the plan's quantization and peft.")
    optimizer = _client_optimizer(plan, trainable)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trainable, optimizer=optimizer, config=config)
    return engine


def _client_optimizer(plan: Plan, parameters: list[nn.Parameter]) -> torch.optim.Optimizer | None:
    name = client_optimizer_name(plan)
    kind = str(plan.optimizer.get("type", ""))
    if name is None:
        if "8bit" in kind.lower():
            raise WorkerError(unknown_name("8-bit optimizer", kind, [name for name in NAMES if "8bit" in name]))
        return None
    try:
        import bitsandbytes
    except ImportError as error:
        raise WorkerError(f"the optimizer {kind} needs bitsandbytes, which cannot be imported: {error}.") from error
    values = plan.optimizer
    build: Any = getattr(bitsandbytes.optim, name)
    optimizer: torch.optim.Optimizer = build(
        parameters,
        lr=values["lr"],
        betas=tuple(values.get("betas", (0.9, 0.999))),
        eps=values.get("eps", 1e-8),
        weight_decay=values.get("weight_decay", 0.0),
    )
    return optimizer


def stop_engine(engine: Any) -> None:
    """Give back what the engine holds and leave the process group."""
    from deepspeed import comm

    engine.destroy()
    comm.destroy_process_group()
