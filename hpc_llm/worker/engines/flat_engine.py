"""Flat units: whole parameters on each rank, shares of gradients, fp32 copies and moments; each unit of layers is one row.

What ZeRO splits is split, but for the parameters as the layers compute with them. Gradients are summed while the backward
pass goes on, and a unit is gathered while the optimizer steps the next one. Forward, backward and these sums are one CUDA
graph where they can be recorded.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import Batch, model_inputs
from hpc_llm.worker.engines.beside import Beside
from hpc_llm.worker.engines.captured import Captured
from hpc_llm.worker.engines.engine import Engine, StepEnd, trainable
from hpc_llm.worker.engines.flat_gradients import FlatGradients
from hpc_llm.worker.engines.flat_units import Named, Unit, grouped
from hpc_llm.worker.engines.held import Bytes, bytes_of, tensors_in
from hpc_llm.worker.engines.layout import Layout
from hpc_llm.worker.engines.row_step import RowStep
from hpc_llm.worker.engines.stepping import make_optimizer
from hpc_llm.worker.kernels import fuse
from hpc_llm.worker.kernels.compiling import CompiledLayers
from hpc_llm.worker.loss import summed_loss
from hpc_llm.worker.model.shapes import DTYPES, layers_of


class FlatEngine(Engine):
    """Trains `model`, which is whole on its device, all of it."""

    name = "flat"
    averages_over = 1  # gradients are summed, and each is weighted with the tokens of all ranks
    has_copies = True
    """Whether a unit has an fp32 copy of its share beside it, where it is in a lower precision."""

    def __init__(self, plan: Plan, model: Any, device: torch.device) -> None:
        self.module, self.device = model, device
        self.optimizer_name = plan.optimizer.type
        trainable(model)
        self._largest_norm = float(plan.engine.deepspeed.get("gradient_clipping") or 0.0)
        groups = grouped(model, layers_of(model), plan.engine.layers_per_unit)
        self._units = self._make_units(plan, groups)
        self._beside = Beside(device, plan.engine.overlap)
        self._gradients = self._make_gradients(plan)
        self._row_step: RowStep | None = None
        self._optimizer = self._make_optimizer(plan)
        # A layer that is compiled as a whole has its parts compiled already.
        parts = plan.changed(fused_layers=False) if plan.engine.compiled_layers else plan
        self._fused = fuse(model, parts, device)
        self._compiled = CompiledLayers(layers_of(model), device) if plan.engine.compiled_layers else None
        is_compiled = self._compiled is not None and self._compiled.is_on
        own = {"compiled_layers": is_compiled, "fused_optimizer": self._row_step is not None}
        self.fused = [*self._fused.parts, *(name for name, is_on in own.items() if is_on)]
        records = plan.engine.cuda_graph and device.type == "cuda"
        # The collectives have threads of their own, whose calls are no part of what is recorded.
        self._captured = Captured(self._compute, (), others="thread_local") if records else None

    def _make_units(self, plan: Plan, groups: list[list[Named]]) -> list[Unit]:
        units = [Unit(group, dist.get_world_size(), dist.get_rank(), copies=self.has_copies) for group in groups]
        for unit in units:
            unit.gather()  # whatever each rank has made of the seed, all begin with the same
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # where the parameters were lies in pieces that no row fits into
        return units

    def _make_gradients(self, plan: Plan) -> FlatGradients:
        kind, several = DTYPES[plan.engine.reduce_precision], plan.batch.gradient_accumulation_steps > 1
        return FlatGradients(self._units, kind, self._beside, accumulates=several)

    def _make_optimizer(self, plan: Plan) -> torch.optim.Optimizer:
        made = make_optimizer(plan.optimizer, [unit.share for unit in self._units], plan.workload.seed)
        in_one_pass = plan.engine.fused_optimizer and isinstance(made, torch.optim.AdamW)
        if in_one_pass and all(unit.has_copy for unit in self._units):
            self._row_step = RowStep(made)
        return made

    def _compute(self, batch: Batch, weight: torch.Tensor) -> torch.Tensor:
        loss = self.loss(batch)
        self._add_gradients(loss * weight)
        return loss.detach()

    def _add_gradients(self, loss: torch.Tensor) -> None:
        self._gradients.begin()
        loss.backward()
        self._gradients.finish()

    def loss(self, batch: Batch) -> torch.Tensor:
        if self._fused.head_loss is not None:
            return self._fused.head_loss(self.module, batch)
        return summed_loss(self.module(**model_inputs(batch), use_cache=False).logits, batch)

    def learn(self, batch: Batch, weight: float | torch.Tensor, *, last: bool) -> torch.Tensor:
        if self._captured is None or not self._captured.takes(batch):
            return super().learn(batch, weight, last=last)
        if not isinstance(weight, torch.Tensor):
            weight = torch.full((), weight, device=self.device)
        return self._captured(batch, weight)

    def forward(self, **inputs: Any) -> Any:
        return self.module(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        # Kept whole until the last micro batch they would need the memory that is saved.
        self._add_gradients(loss)

    def step(self) -> StepEnd:
        with torch.no_grad():
            norm = self._norm()
            factor = (self._largest_norm / (norm + 1e-6)).clamp(max=1.0).reshape(1) if self._largest_norm else None
            self._change(factor)
            self._beside.join()
            self._gradients.forget()
        return StepEnd(norm, False)

    def _change(self, factor: torch.Tensor | None) -> None:
        """Step all shares by their gradients times `factor`, and gather what was stepped."""
        row_step = self._row_step if self._row_step is not None and self._row_step.begin(factor) else None
        for unit, gradient in zip(self._units, self._gradients.shares, strict=True):
            if row_step is not None:
                row_step(unit.share, unit.own, gradient)
            else:
                self._step_one(unit, self._shortened(gradient, factor))
            self._gather(unit)

    def _gather(self, unit: Unit) -> None:
        with self._beside.running():
            unit.gather()  # while the next one's share is changed

    def _step_one(self, unit: Unit, gradient: torch.Tensor) -> None:
        """Change a unit's share, as the optimizer does it."""
        with _alone(self._optimizer, unit.share):
            unit.share.grad = gradient
            self._optimizer.step()
            unit.share.grad = None
        unit.round_share()

    def _norm(self) -> torch.Tensor:
        """Of the gradients of all ranks, on the device. Collective."""
        squares = self._gradients.squares()
        dist.all_reduce(squares)
        return squares.sqrt()

    def _shortened(self, gradient: torch.Tensor, factor: torch.Tensor | None) -> torch.Tensor:
        """The gradient in fp32, times `factor`, which is a row of one number: a single one would be rounded as the gradient is."""
        if gradient.dtype == torch.float32:
            return gradient if factor is None else gradient.mul_(factor)
        wide = self._gradients.space[: gradient.numel()]
        return wide.copy_(gradient) if factor is None else torch.mul(gradient, factor, out=wide)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    def held(self) -> dict[str, Bytes]:
        copies = [unit.share for unit in self._units if unit.has_copy]
        return {
            "parameters": bytes_of(row for unit in self._units for row in unit.held()),
            "gradients": bytes_of(self._gradients.tensors()),
            "optimizer": bytes_of([*copies, *tensors_in(self._optimizer.state)]),
        }

    def sentences(self) -> list[str]:
        parts = (self._fused, self._compiled, self._captured, self._row_step)
        return [sentence for part in parts if part is not None for sentence in part.sentences]

    def layout(self) -> Layout:
        parts = [part for unit in self._units for part in unit.parts()]
        return Layout(parts, self._optimizer, f"flat units of {len(self._units)} on {dist.get_world_size()} ranks")

    def close(self) -> None:
        # A graph that holds collectives must be gone before what carries them out.
        self._captured = None
        if self._compiled is not None:
            self._compiled.close()
        self._fused.undo()
        gc.collect()
        super().close()


@contextmanager
def _alone(optimizer: torch.optim.Optimizer, share: torch.Tensor) -> Iterator[None]:
    """Inside, the optimizer steps nothing but this share."""
    (group,) = optimizer.param_groups
    every, group["params"] = group["params"], [share]
    try:
        yield
    finally:
        group["params"] = every
