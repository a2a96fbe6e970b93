"""DeepSpeed: its config adapted to the device, the process group, the engine. With ZeRO it splits what ranks hold."""

from __future__ import annotations

import copy
import functools
import importlib.util
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.deepspeed_config import check_keys
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import OF_DEEPSPEED, bitsandbytes_name
from hpc_llm.worker.compiled_late import compiled_when_called
from hpc_llm.worker.device import Toolchain, find_toolchain
from hpc_llm.worker.engines.deepspeed_groups import ModelParallel
from hpc_llm.worker.engines.deepspeed_layout import find_layout, scaler_state, take_scaler_state
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd, trainable
from hpc_llm.worker.engines.held import Bytes, bytes_of, optimizer_tensors, parameter_tensors
from hpc_llm.worker.engines.layout import Layout
from hpc_llm.worker.engines.stepping import make_optimizer
from hpc_llm.worker.model.build import build_model
from hpc_llm.worker.tensor_parallel.group import TensorGroup, join

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
    check_keys(plan.engine.deepspeed, where="the plan's deepspeed")
    _check_batch(plan)
    config = copy.deepcopy(plan.engine.deepspeed)
    sentences: list[str] = []
    for key in sorted(config.keys() & removed_keys.keys()):
        del config[key]
        sentences.append(f"The installed DeepSpeed has no {key} any more, so it is left out.")
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
        "train_batch_size": plan.batch.global_batch_size,
        "train_micro_batch_size_per_gpu": plan.batch.micro_batch_size,
        "gradient_accumulation_steps": plan.batch.gradient_accumulation_steps,
    }
    groups = plan.parallel.world_size // plan.parallel.tensor
    computed = groups * plan.batch.micro_batch_size * plan.batch.gradient_accumulation_steps
    if plan.batch.global_batch_size != computed or plan.parallel.data != groups:
        raise RequestError(
            f"the plan's global_batch_size is {plan.batch.global_batch_size} for {plan.parallel.world_size} ranks in {plan.parallel.data} "
            f"groups with {plan.batch.micro_batch_size} x {plan.batch.gradient_accumulation_steps} sequences each: it must be "
            f"{computed}."
        )
    for key, value in planned.items():
        if plan.engine.deepspeed.get(key, value) != value:
            raise RequestError(f"the plan's deepspeed: {key} is {plan.engine.deepspeed[key]!r}, the plan says {value}.")


def zero_stage(config: Mapping[str, Any]) -> int:
    return int((config.get("zero_optimization") or {}).get("stage", 0))


def offload_device(config: Mapping[str, Any], what: str) -> str:
    """`cpu`, `nvme` or `none`; `what` is `offload_optimizer` or `offload_param`."""
    block = (config.get("zero_optimization") or {}).get(what) or {}
    return str(block.get("device") or "none")


def client_optimizer_name(plan: Plan) -> str | None:
    """bitsandbytes' class for the plan's optimizer; None where DeepSpeed builds it."""
    return bitsandbytes_name(plan.optimizer.type)


def _refuse_fp16_on_cpu(plan: Plan, config: Mapping[str, Any]) -> None:
    if plan.model.precision == "fp16" or (config.get("fp16") or {}).get("enabled") is True:
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
        compiler = (
            "a C++ compiler with ninja" if offloaded or not toolchain.host else "the GPU's compiler (nvcc or hipcc)"
        )
        missing = toolchain.lacks or compiler
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


@functools.cache
def imported() -> Any:
    """DeepSpeed, the first time without the MLflow of its autotuner, which nothing here asks for: where that is installed it
    would take each rank a quarter of its start."""
    hides = "mlflow" not in sys.modules
    if hides:
        sys.modules["mlflow"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("deepspeed")
    finally:
        if hides:
            sys.modules.pop("mlflow", None)


def removed_keys() -> Mapping[str, str]:
    """Top-level keys that the installed DeepSpeed refuses, with its reason."""
    return getattr(imported().runtime.config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", {})


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
    deepspeed = imported()
    if device.type == "cpu" and os.environ.get(COMPILE_ON_CPU) != "1":
        # DeepSpeed would compile its shared-memory collectives here, for a minute; gloo does the work as well.
        deepspeed.ops.__compatible_ops__ = defaultdict(bool)
    deepspeed.init_distributed(verbose=False)


class DeepSpeedEngine(Engine):
    """Trains what `deepspeed.initialize` made."""

    name = "deepspeed"

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        config: dict[str, Any],
        device: torch.device,
        tensor: TensorGroup | None = None,
    ) -> None:
        self.device, self.tensor = device, tensor
        self._stage = zero_stage(config)
        self.optimizer_name = plan.optimizer.type
        self.splits = self._stage == 3
        parameters = trainable(model)
        optimizer = _client_optimizer(plan, parameters)
        self._engine: Any
        shared = {} if tensor is None else {"mpu": ModelParallel(model, tensor)}
        deepspeed = imported()
        with compiled_when_called():  # it imports Muon's step, which is compiled and nearly always left alone
            self._engine, *_ = deepspeed.initialize(
                model=model, model_parameters=parameters, optimizer=optimizer, config=config, **shared
            )
        self.module = self._engine.module
        self.averages_over = plan.batch.gradient_accumulation_steps * plan.parallel.data

    def forward(self, **inputs: Any) -> Any:
        return self._engine(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._engine.backward(loss)
        if not last:
            self._engine.step()  # it counts the micro batches, and changes nothing yet

    def step(self) -> StepEnd:
        skipped_before = self._engine.skipped_steps
        self._engine.step()
        return StepEnd(self._engine.get_global_grad_norm(), self._engine.skipped_steps > skipped_before)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self._engine.optimizer.param_groups
        return groups

    @property
    def learning_rate(self) -> float | None:
        rates = self._engine.get_lr()
        return float(rates[0]) if rates else None

    def held(self) -> dict[str, Bytes]:
        # Its gradients lie in buffers that differ with stage and version, and are not counted.
        return {
            "parameters": bytes_of(parameter_tensors(self.module)),
            "optimizer": bytes_of(optimizer_tensors(self._base_optimizer, self.module)),
        }

    @property
    def _base_optimizer(self) -> torch.optim.Optimizer:
        """The one that steps, inside those that DeepSpeed wraps around it."""
        found = self._engine.optimizer
        while hasattr(found, "optimizer"):
            found = found.optimizer
        base: torch.optim.Optimizer = found
        return base

    def layout(self) -> Layout:
        return find_layout(self.module, self._engine.optimizer, self._base_optimizer, self._stage)

    def steering(self) -> dict[str, Any]:
        scheduler = self._engine.lr_scheduler
        rates = {} if scheduler is None else {"scheduler": scheduler.state_dict(), "rates": self._engine.get_lr()}
        return {**rates, **scaler_state(self._engine.optimizer)}

    def take_steering(self, found: Mapping[str, Any]) -> None:
        if self._engine.lr_scheduler is not None and "scheduler" in found:
            self._engine.lr_scheduler.load_state_dict(found["scheduler"])
            for group, rate in zip(self.param_groups, found["rates"], strict=True):
                group["lr"] = rate
        take_scaler_state(self._engine.optimizer, found)

    def joined(self, parameter: nn.Parameter) -> torch.Tensor:
        with imported().zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            return parameter.detach().clone()

    def own_part(self, parameter: nn.Parameter) -> torch.Tensor | None:
        part = getattr(parameter, "ds_tensor", None)
        if part is None:
            return parameter.detach()
        begin = torch.distributed.get_rank(getattr(parameter, "ds_process_group", None)) * part.ds_numel
        size = max(0, min(parameter.ds_numel - begin, part.ds_numel))
        own: torch.Tensor = part.detach().flatten()
        return own[:size] if own.numel() >= size else None  # what lies on a disk is not looked at

    def close(self) -> None:
        self._engine.destroy()
        imported().comm.destroy_process_group()


def _client_optimizer(plan: Plan, parameters: list[nn.Parameter]) -> torch.optim.Optimizer | None:
    """bitsandbytes' optimizer where the plan names one; None where DeepSpeed builds it."""
    kind = plan.optimizer.type
    if kind in OF_DEEPSPEED or (client_optimizer_name(plan) is None and "8bit" not in kind.lower()):
        return None
    return make_optimizer(plan.optimizer, parameters)


def _missing() -> str | None:
    return None if importlib.util.find_spec("deepspeed") else "it is not installed"


def _join(device: torch.device) -> None:
    prepare_compiling(device)
    init_process_group(device)


def _build(plan: Plan, device: torch.device) -> Built:
    adapted = adapt_config(plan, device.type, find_toolchain(), removed_keys())
    tensor = join(plan)
    model = build_model(plan, adapted.config, device, tensor)
    return Built(DeepSpeedEngine(plan, model, adapted.config, device, tensor), adapted.sentences)


KIND = EngineKind(name="deepspeed", missing=_missing, join=_join, build=_build)
