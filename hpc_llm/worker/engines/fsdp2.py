"""FSDP2: each rank holds a share of every parameter, in fp32, with its gradient and the optimizer's states.

The layers are made, or loaded, one after the other, and each is split among the ranks before the next one is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.device import torch_release
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd, join_torch, trainable
from hpc_llm.worker.engines.held import Bytes, bytes_of, local
from hpc_llm.worker.engines.layout import ALL_APART, Copies, Layout, Part
from hpc_llm.worker.engines.shares import Shares, clip_shares
from hpc_llm.worker.engines.stepping import Stepper
from hpc_llm.worker.kernels import fuse
from hpc_llm.worker.kernels.compiling import CompiledLayers
from hpc_llm.worker.model.giving import source, take
from hpc_llm.worker.model.prepare import prepare
from hpc_llm.worker.model.quantized import quantized_model
from hpc_llm.worker.model.shapes import DTYPES, inner_first, layers_of, rows_of_layers, skeleton
from hpc_llm.worker.tensor_parallel.group import TensorGroup, join
from hpc_llm.worker.tensor_parallel.split import copies, share_inputs, split_module

_ADAPTER = ".lora_"
_PEFT = "base_model.model."
_MIXES_TYPES = (2, 9)
"""Since then what is frozen in a unit may be of another type than what trains."""
_OLDEST_TORCH = (2, 6)
"""`fully_shard` has its place in torch.distributed.fsdp since then."""


class Fsdp2Engine(Engine):
    """Trains `model`, whose parameters are split among the ranks."""

    name = "fsdp2"
    splits = True

    def __init__(self, plan: Plan, model: Any, device: torch.device, tensor: TensorGroup | None = None) -> None:
        self.module, self.device, self.tensor = model, device, tensor
        self.optimizer_name = plan.optimizer.type
        self.averages_over = plan.parallel.data
        # A loss scaler looks for what overflowed in whole gradients: a rank must not skip a step that others take.
        scaled = plan.model.precision == "fp16"
        self._shares = None if scaled else Shares(trainable(model))
        steps = trainable(model) if self._shares is None else self._shares.parameters
        self._wholes = _whole_models(plan)
        self.copy = dist.get_rank() // (dist.get_world_size() // self._wholes)
        held_by = [count * self._wholes for count in _holders(trainable(model), tensor)]
        clip = None if self._shares is None else partial(clip_shares, copies=held_by)
        self._stepper = Stepper(plan, steps, device, clip)
        self._compiled = CompiledLayers(layers_of(model), device) if plan.engine.compiled_layers else None
        self._fused = fuse(model, plan, device)
        self.fused = [*self._fused.parts, *(["compiled_layers"] if self._compiled and self._compiled.is_on else [])]

    def loss(self, batch: Batch) -> torch.Tensor:
        if self._fused.head_loss is None:
            return super().loss(batch)
        # The head's weight is whole from the model's forward to its backward, for the outermost unit is never given up between.
        return self._fused.head_loss(self.module, batch)

    def forward(self, **inputs: Any) -> Any:
        return self.module(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        # Gradients are averaged and split after each micro batch: kept whole they would need the memory that is saved.
        self._stepper.scaled(loss).backward()

    def step(self) -> StepEnd:
        if self._shares is not None:
            self._shares.collect()
        return self._stepper.step()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        with super().evaluating():
            yield
        for module in self.module.modules():  # a pass without a backward leaves whole what waits for one
            if hasattr(module, "reshard"):
                module.reshard()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self.evaluating():
            self.module.unshard()  # what no layer holds is gathered for calls of the whole model alone
            yield

    def close(self) -> None:
        if self._compiled is not None:
            self._compiled.close()
        self._fused.undo()
        super().close()

    def sentences(self) -> list[str]:
        return [*self._fused.sentences, *([] if self._compiled is None else self._compiled.sentences)]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._stepper.param_groups

    def held(self) -> dict[str, Bytes]:
        return {"parameters": bytes_of(self.module.parameters()), **self._stepper.held(self.module)}

    def layout(self) -> Layout:
        named = [(name, each) for name, each in self.module.named_parameters() if each.requires_grad]
        steps = [each for _, each in named] if self._shares is None else self._shares.parameters
        parts = [
            Part(name, _begin(each), local(each).numel(), stepped)
            for (name, each), stepped in zip(named, steps, strict=True)
        ]
        apart = dist.get_world_size() // self._wholes
        alike = ALL_APART if self._wholes == 1 else Copies(self.copy, self._wholes, dist.get_rank() % apart)
        return Layout(parts, self._stepper.optimizer, f"FSDP2 on {apart} ranks", alike)

    def steering(self) -> dict[str, Any]:
        return self._stepper.steering()

    def take_steering(self, found: Mapping[str, Any]) -> None:
        self._stepper.take_steering(found)

    def joined(self, parameter: nn.Parameter) -> torch.Tensor:
        split: Any = parameter.detach()
        whole: torch.Tensor = split.full_tensor()
        return whole

    def own_part(self, parameter: nn.Parameter) -> torch.Tensor:
        return local(parameter)


def _begin(parameter: Any) -> int:
    """Where this rank's share begins in the whole: it is split by its first dimension into equal parts, the last ones less."""
    mesh = parameter.device_mesh
    split = mesh.ndim - 1  # before it are those that hold the same
    rows = -(-parameter.shape[0] // mesh.size(split))
    return int(min(mesh.get_local_rank(split) * rows, parameter.shape[0]) * parameter.stride(0))


def _whole_models(plan: Plan) -> int:
    """How many are split among the ranks, each among those of a node."""
    return plan.parallel.nodes if plan.engine.hybrid_sharding else 1


def _holders(parameters: Sequence[nn.Parameter], tensor: TensorGroup | None) -> Sequence[int]:
    """Of each parameter, how many ranks of a whole model hold the same part."""
    return [1] * len(parameters) if tensor is None else copies(parameters, tensor)


def _missing() -> str | None:
    if torch_release() >= _OLDEST_TORCH:
        return None
    return f"it needs torch {'.'.join(map(str, _OLDEST_TORCH))}, here is {torch.__version__}"


def _build(plan: Plan, device: torch.device) -> Built:
    if plan.model.quantization is not None:
        return Built(Fsdp2Engine(plan, _quantized(plan, device), device))
    frozen = DTYPES[plan.model.precision] if plan.model.peft and torch_release() >= _MIXES_TYPES else torch.float32
    model, tensor = prepare(skeleton(plan, frozen), plan), join(plan)
    _materialise(model, plan, device, tensor)
    return Built(Fsdp2Engine(plan, model, device, tensor))


def _quantized(plan: Plan, device: torch.device) -> Any:
    """A model on a quantized base, which is packed whole on each rank, and then split."""
    model = prepare(quantized_model(plan, device, split=True), plan)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    split = _splitter(plan, device)
    for layer in layers_of(model):
        split(layer)
    split(model)
    for module in model.modules():
        state = getattr(module, "quant_state", None)
        if state is not None:  # the parameter is another one by now
            module.weight.quant_state = state
    return model


def _materialise(model: Any, plan: Plan, device: torch.device, tensor: TensorGroup | None) -> None:
    """Give `model`, which is on the meta device, its values and split it: never is more of it whole than one unit of layers.

    The first rank reads a checkpoint and gives to the others. With `tensor` each rank has its part of a layer alone, and that is split.
    """
    given = source(plan, torch.float32)
    split = _splitter(plan, device)
    units = _units(model, plan.engine.layers_per_unit)
    with torch.no_grad():
        for name, module in inner_first(model):
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            if _ADAPTER in name:
                _begin_adapter(module, name, device)
            elif any(tensor.is_meta for tensor in own):
                module.to_empty(device=device, recurse=False)
                model._init_weights(module)
                _round(module, plan)
                take(module, name.removeprefix(_PEFT).replace(".base_layer", ""), given)
            if tensor is not None:
                split_module(name, module, tensor)
            if module in units:
                split(units[module])
        model.tie_weights()
    split(model)
    if tensor is not None:
        share_inputs(model, tensor)


def _round(module: nn.Module, plan: Plan) -> None:
    """Round first values to the plan's precision, as engines have them whose copies in fp32 are made of it.

    Else steps that are smaller than its spacing would move some weights at once that do not move there yet: of a 7B in bf16 the loss was
    0.3 nats lower after 8 steps, and an engine that is chosen by its memory would look like one that learns faster.
    """
    for parameter in module.parameters(recurse=False):
        parameter.copy_(parameter.to(DTYPES[plan.model.precision]))


def _begin_adapter(module: nn.Module, name: str, device: torch.device) -> None:
    """First values of an adapter, in fp32 and the same on all ranks: what it adds is nothing at first. Collective."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter):
        return
    fresh = torch.zeros(weight.shape, dtype=torch.float32, device=device)
    if ".lora_A" in name:
        nn.init.kaiming_uniform_(fresh, a=math.sqrt(5))
    dist.broadcast(fresh, src=0)
    module.weight = nn.Parameter(fresh)


def _units(model: nn.Module, size: int) -> dict[nn.Module, list[nn.Module]]:
    """So many layers at a time, by the last one of them. None spans an encoder and a decoder, which may be called apart."""
    found = {}
    for row in rows_of_layers(model):
        for begin in range(0, len(row), size):
            group = row[begin : begin + size]
            found[group[-1]] = group
    return found


def _splitter(plan: Plan, device: torch.device) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    wholes = _whole_models(plan)
    sizes = (wholes, plan.parallel.world_size // plan.parallel.tensor // wholes, plan.parallel.tensor)
    meshes = init_device_mesh(device.type, sizes, mesh_dim_names=("node", "data", "tensor"))
    mesh = meshes["data"] if wholes == 1 else meshes["node", "data"]
    low = None if plan.model.precision == "fp32" else DTYPES[plan.model.precision]
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=DTYPES[plan.engine.reduce_precision])
    kept = {"reshard_after_forward": False} if plan.engine.keeps_parameters else {}
    return lambda modules: fully_shard(modules, mesh=mesh, mp_policy=policy, **kept)


KIND = EngineKind(name="fsdp2", missing=_missing, join=join_torch, build=_build)
