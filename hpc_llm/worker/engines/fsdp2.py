"""FSDP2: each rank holds a share of every parameter, in fp32, with its gradient and the optimizer's states.

The layers are made, or loaded, one after the other, and each is split among the ranks before the next one is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.errors import WorkerError
from hpc_llm.plan.experiment import Plan
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd, join_torch, trainable
from hpc_llm.worker.engines.stepping import Stepper
from hpc_llm.worker.model.prepare import prepare
from hpc_llm.worker.model.shapes import DTYPES, inner_first, skeleton
from hpc_llm.worker.model.weights import load_checkpoint

_OLDEST_TORCH = (2, 6)
"""`fully_shard` has its place in torch.distributed.fsdp since then."""


class Fsdp2Engine(Engine):
    """Trains `model`, whose parameters are split among the ranks."""

    def __init__(self, plan: Plan, model: Any, device: torch.device) -> None:
        self.module = model
        self.averages_over = plan.world_size
        self._stepper = Stepper(plan, trainable(model), device)

    def forward(self, **inputs: Any) -> Any:
        return self.module(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        # Gradients are averaged and split after each micro batch: kept whole they would need the memory that is saved.
        self._stepper.scaled(loss).backward()

    def step(self) -> StepEnd:
        return self._stepper.step()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._stepper.param_groups

    def held(self) -> dict[str, int]:
        return {"parameters": self._stepper.held, "optimizer": self._stepper.held}


def _missing() -> str | None:
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release >= _OLDEST_TORCH:
        return None
    return f"it needs torch {'.'.join(map(str, _OLDEST_TORCH))}, here is {torch.__version__}"


def _build(plan: Plan, device: torch.device) -> Built:
    if plan.quantization or plan.peft:
        raise WorkerError("the engine fsdp2 trains whole models: choose another one for quantization and LoRA.")
    model = skeleton(plan, torch.float32)
    _materialise(model, plan, device)
    return Built(Fsdp2Engine(plan, prepare(model, plan), device))


def _materialise(model: Any, plan: Plan, device: torch.device) -> None:
    """Give `model`, which is on the meta device, its values and split it: never is more of it whole than one layer.

    The first rank reads a checkpoint and gives to the others: a shared file system serves one reader well, not hundreds.
    """
    source = _source(plan)
    split = _splitter(plan, device)
    layers = set(_layers(model))
    with torch.no_grad():
        for name, module in inner_first(model):
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if any(tensor.is_meta for tensor in own):
                module.to_empty(device=device, recurse=False)
                model._init_weights(module)
                _take(module, name, source)
            if module in layers:
                split(module)
        model.tie_weights()
    split(model)


def _source(plan: Plan) -> Mapping[str, torch.Tensor] | None:
    """The values of the checkpoint on the first rank, nothing on the others; None where weights are random."""
    if plan.weights != "checkpoint":
        return None
    if dist.get_rank() != 0:
        return {}
    state: dict[str, torch.Tensor] = load_checkpoint(plan.model, dtype=torch.float32).state_dict()
    return state


def _take(module: nn.Module, name: str, source: Mapping[str, torch.Tensor] | None) -> None:
    """Fill the module's own parameters and buffers from the first rank's checkpoint. Collective."""
    if source is None:
        return
    for own, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        value = source.get(f"{name}.{own}" if name else own)
        if value is not None:
            tensor.copy_(value)
        dist.broadcast(tensor, src=0)


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """The decoder layers, which hold nearly all parameters; one is split, gathered and given up as a whole."""
    wanted = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        if type(module).__name__ in wanted:
            yield module


def _splitter(plan: Plan, device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device.type, (plan.world_size,))
    low = None if plan.precision == "fp32" else DTYPES[plan.precision]
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
    return lambda module: fully_shard(module, mesh=mesh, mp_policy=policy)


KIND = EngineKind(name="fsdp2", missing=_missing, join=join_torch, build=_build)
