"""Flat units whose fp32 states lie on the host: the device holds the parameters, and of gradients those of a few units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.engines import state
from hpc_llm.worker.engines.cores import take_own_cores
from hpc_llm.worker.engines.flat_engine import FlatEngine
from hpc_llm.worker.engines.flat_gradients import FlatGradients
from hpc_llm.worker.engines.flat_units import Named, Unit, grouped
from hpc_llm.worker.engines.held import Bytes, bytes_of
from hpc_llm.worker.engines.host_gradients import HostGradients
from hpc_llm.worker.engines.host_memory import HostMemory
from hpc_llm.worker.engines.host_states import HostStates
from hpc_llm.worker.engines.host_step import HostStep
from hpc_llm.worker.engines.streamed_step import StreamedStep
from hpc_llm.worker.engines.visits import HostUnit, Visits
from hpc_llm.worker.model.build import build_model
from hpc_llm.worker.model.giving import source, take
from hpc_llm.worker.model.prepare import prepare
from hpc_llm.worker.model.shapes import DTYPES, inner_first, layers_of, skeleton


class OffloadEngine(FlatEngine):
    """As FlatEngine; the optimizer steps what lies on the host, on the device or on the host, as the plan says."""

    has_copies = False

    def __init__(self, plan: Plan, model: Any, device: torch.device, memory: HostMemory) -> None:
        self._memory = memory
        super().__init__(plan, model, device)

    def _make_gradients(self, plan: Plan) -> FlatGradients:
        kind, several = DTYPES[plan.engine.reduce_precision], plan.batch.gradient_accumulation_steps > 1
        how = {"accumulates": several, "overlap": plan.engine.overlap}
        return HostGradients(self._units, kind, self._beside, self._memory, **how)

    def _make_optimizer(self, plan: Plan) -> torch.optim.Optimizer:
        on_host, overlap = plan.engine.offloaded_step == "host", plan.engine.overlap
        if on_host and self.device.type == "cuda":
            take_own_cores()
        moments = DTYPES[plan.engine.moments_precision]
        self._states = HostStates(self._units, plan.optimizer, self._memory, moments, whole=on_host)
        self._step: HostStep | StreamedStep = (
            HostStep(self._states, self.device, overlap, self._memory)
            if on_host
            else StreamedStep(self._states, self.device, overlap, plan.workload.seed)
        )
        return self._states.optimizer

    def _change(self, factor: torch.Tensor | None) -> None:
        self._step(self._gradients.shares, factor, self._gradients.space, self._gather)

    def write_state(self, folder: Path) -> None:
        self._wait()
        with self._states.in_fp32(changing=False):
            super().write_state(folder)

    def read_state(self, folder: Path) -> None:
        self._wait()
        with self._states.in_fp32(changing=True):
            super().read_state(folder)
        for unit in self._units:
            unit.gather()  # all ranks round as the one whose share it is

    def _wait(self) -> None:
        """Until all that was asked for is on the host."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def held(self) -> dict[str, Bytes]:
        kept = [tensor for share in self._states.shares for tensor in share.kept]
        return {**super().held(), "optimizer": bytes_of(kept)}

    def close(self) -> None:
        self._wait()
        super().close()
        self._memory.close()


class VisitingEngine(OffloadEngine):
    """Of the parameters, too, each rank has its share on the host; some units at a time are on the device."""

    def __init__(self, plan: Plan, model: Any, units: list[HostUnit], device: torch.device, memory: HostMemory) -> None:
        self._made = units
        super().__init__(plan, model, device, memory)
        self._visits = Visits(model, units, self._beside, plan.engine.overlap)

    def _make_units(self, plan: Plan, groups: list[list[Named]]) -> list[Unit]:
        return list(self._made)

    def loss(self, batch: Batch) -> torch.Tensor:
        self._visits.begin(backward=False)
        with self._visits.keeping():
            return super().loss(batch)

    def forward(self, **inputs: Any) -> Any:
        self._visits.begin(backward=False)
        with self._visits.keeping():
            return super().forward(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._visits.begin(backward=True)
        super().backward(loss, last=last)

    def _change(self, factor: torch.Tensor | None) -> None:
        super()._change(factor)
        self._visits.forget()  # behind the last number that goes back to the host

    def joined(self, parameter: nn.Parameter) -> torch.Tensor:
        with torch.no_grad():
            return self._visits.whole(parameter)

    def held(self) -> dict[str, Bytes]:
        found, rows = super().held(), bytes_of(self._visits.tensors())
        return {**found, "parameters": {place: size + rows[place] for place, size in found["parameters"].items()}}

    def read_state(self, folder: Path) -> None:
        self._wait()
        with self._states.in_fp32(changing=True):
            # Of the module nothing is filled: its parameters come with the shares.
            state.read(self.placed(), self.optimizer_name, nn.Module(), folder)
        self._visits.forget()


def built(plan: Plan, device: torch.device) -> OffloadEngine:
    """The plan's model with its states on the host, and its parameters where the plan says so."""
    memory = HostMemory(device)
    block = plan.engine.deepspeed["zero_optimization"].get("offload_param") or {}
    if block.get("device") in (None, "none"):
        return OffloadEngine(plan, build_model(plan, {}, device), device, memory)
    model, units = _built_in_pieces(plan, device, memory)
    return VisitingEngine(plan, model, units, device, memory)


def _built_in_pieces(plan: Plan, device: torch.device, memory: HostMemory) -> tuple[Any, list[HostUnit]]:
    """The model and its units, never more than a unit on the device. The first rank reads a checkpoint and gives to the others."""
    dtype = DTYPES[plan.model.precision]
    model, given = prepare(skeleton(plan, dtype), plan), source(plan, dtype)
    groups = [[name for name, _ in group] for group in grouped(model, layers_of(model), plan.engine.layers_per_unit)]
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    missing = [set(group) for group in groups]
    units: dict[int, HostUnit] = {}
    with torch.no_grad():
        for name, module in inner_first(model):
            if any(each.is_meta for each in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
                module.to_empty(device=device, recurse=False)
                model._init_weights(module)
                take(module, name, given)
            for own, _ in module.named_parameters(recurse=False):
                number = group_of.get(f"{name}.{own}" if name else own)
                if number is None:
                    continue  # it is the same as another one, and is let go below
                missing[number].discard(f"{name}.{own}" if name else own)
                if not missing[number] and number not in units:
                    named = [(each, model.get_parameter(each)) for each in groups[number]]
                    units[number] = HostUnit(named, dist.get_world_size(), dist.get_rank(), memory)
        model.tie_weights()
    return model, [units[number] for number in range(len(groups))]
