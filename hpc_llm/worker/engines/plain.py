"""Plain PyTorch: the whole model on each rank, gradients averaged among them (DDP)."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.optimizers import PURE_BF16
from hpc_llm.worker.data.batch import Batch, model_inputs
from hpc_llm.worker.engines.captured import Captured
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd, join_torch, trainable
from hpc_llm.worker.engines.held import Bytes, bytes_of, parameter_tensors
from hpc_llm.worker.engines.layout import Layout, Part
from hpc_llm.worker.engines.shares import clip_shares
from hpc_llm.worker.engines.stepping import Masters, Stepper
from hpc_llm.worker.kernels import fuse
from hpc_llm.worker.kernels.compiling import CompiledLayers
from hpc_llm.worker.loss import summed_loss
from hpc_llm.worker.model.build import build_model
from hpc_llm.worker.model.shapes import layers_of
from hpc_llm.worker.tensor_parallel.group import TensorGroup, join
from hpc_llm.worker.tensor_parallel.split import copies

_BUCKET = 2**26
"""Numbers that are averaged at once."""


class PlainEngine(Engine):
    """Trains `model`, which is on its device. Its low-precision weights follow fp32 copies."""

    name = "plain"

    def __init__(self, plan: Plan, model: Any, device: torch.device, tensor: TensorGroup | None = None) -> None:
        self.module, self.device, self.tensor = model, device, tensor
        self.optimizer_name = plan.optimizer.type
        self.averages_over = plan.parallel.data
        self._alike = None if tensor is None else tensor.data_group
        self._masters = Masters(trainable(model), copies=plan.optimizer.type not in PURE_BF16)
        self._stepper = self._make_stepper(plan)
        self._fused = fuse(model, plan, device)
        self._compiled = CompiledLayers(layers_of(model), device) if plan.engine.compiled_layers else None
        self.fused = [*self._fused.parts, *(["compiled_layers"] if self._compiled and self._compiled.is_on else [])]
        # With several micro batches their sum is kept in fp32 and averaged once, for which DDP has no way.
        self._captured = self._capture(plan)
        several = plan.batch.gradient_accumulation_steps > 1 or self._captured is not None
        self._averages_itself = plan.parallel.data > 1 and several
        self._model = model
        # DDP keeps memory for all gradients; they lie in it themselves where it averages them and they are in fp32.
        self._has_own_buckets = plan.parallel.data > 1 and (self._averages_itself or self._masters.has_copies)
        if plan.parallel.data > 1 and self._captured is None:
            self._model = DistributedDataParallel(
                model,
                device_ids=[device] if device.type == "cuda" else None,
                process_group=self._alike,
                gradient_as_bucket_view=True,
            )

    def _make_stepper(self, plan: Plan) -> Stepper:
        if self.tensor is None:
            return Stepper(plan, self._masters.parameters, self.device)
        clip = partial(clip_shares, copies=copies(trainable(self.module), self.tensor), group=self.tensor.group)
        return Stepper(plan, self._masters.parameters, self.device, clip, self.tensor.group)

    def _capture(self, plan: Plan) -> Captured | None:
        is_wanted = plan.engine.cuda_graph and self.device.type == "cuda"
        return Captured(self._compute, trainable(self.module)) if is_wanted else None

    def _compute(self, batch: Batch, weight: torch.Tensor) -> torch.Tensor:
        """Forward and backward on this rank alone."""
        loss = self._loss_of(self.module, batch)
        self._stepper.scaled(loss * weight).backward()
        return loss.detach()

    def loss(self, batch: Batch) -> torch.Tensor:
        return self._loss_of(self.forward, batch)

    def _loss_of(self, model: Callable[..., Any], batch: Batch) -> torch.Tensor:
        if self._fused.head_loss is not None:
            return self._fused.head_loss(model, batch)
        return summed_loss(model(**model_inputs(batch), use_cache=False).logits, batch)

    def learn(self, batch: Batch, weight: float | torch.Tensor, *, last: bool) -> torch.Tensor:
        if self._captured is None or not self._captured.takes(batch):
            return super().learn(batch, weight, last=last)
        if not isinstance(weight, torch.Tensor):
            weight = torch.full((), weight, device=self.device)
        loss = self._captured(batch, weight)
        self._collect(last)
        return loss

    def forward(self, **inputs: Any) -> Any:
        alone = self._averages_itself and isinstance(self._model, DistributedDataParallel)
        with self._model.no_sync() if alone else contextlib.nullcontext():
            return self._model(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._stepper.scaled(loss).backward()
        self._collect(last)

    def _collect(self, last: bool) -> None:
        self._masters.collect()
        if last and self._averages_itself:
            gradients = [master.grad for master in self._masters.parameters if master.grad is not None]
            average(gradients, self._alike)

    def step(self) -> StepEnd:
        end = self._stepper.step()
        self._masters.write_back()
        return end

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._stepper.param_groups

    def close(self) -> None:
        # DDP first: were it the last to hold the process group, its end would wait for threads that wait for Python's lock.
        self._model = self.module
        if self._compiled is not None:
            self._compiled.close()
        self._fused.undo()
        gc.collect()
        super().close()

    def held(self) -> dict[str, Bytes]:
        found = {"parameters": bytes_of(parameter_tensors(self.module)), **self._stepper.held(self.module)}
        if self._has_own_buckets and "gradients" in found:
            buckets = bytes_of(trainable(self.module))
            found["gradients"] = {place: size + buckets[place] for place, size in found["gradients"].items()}
        return found

    def layout(self) -> Layout:
        names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        steppeds = zip(names, self._masters.parameters, strict=True)
        parts = [Part(name, 0, stepped.numel(), stepped) for name, stepped in steppeds]
        return Layout(parts, self._stepper.optimizer)

    def sentences(self) -> list[str]:
        parts = (self._fused, self._compiled, self._captured)
        of_optimizer = getattr(self._stepper.optimizer, "sentences", [])
        return [sentence for part in parts if part is not None for sentence in part.sentences] + of_optimizer

    def steering(self) -> dict[str, Any]:
        return self._stepper.steering()

    def take_steering(self, found: Mapping[str, Any]) -> None:
        self._stepper.take_steering(found)


def average(gradients: list[torch.Tensor], group: Any = None) -> None:
    """Make each the mean over all ranks, or those of a group, many at once. Collective."""
    bucket: list[torch.Tensor] = []
    for gradient in [*gradients, None]:
        if bucket and (gradient is None or sum(one.numel() for one in bucket) + gradient.numel() > _BUCKET):
            flat = torch.cat([one.flatten() for one in bucket])
            dist.all_reduce(flat, group=group)
            flat /= dist.get_world_size(group)
            parts = flat.split([one.numel() for one in bucket])
            torch._foreach_copy_(bucket, [part.view_as(one) for part, one in zip(parts, bucket, strict=True)])
            bucket = []
        if gradient is not None:
            bucket.append(gradient)


def _build(plan: Plan, device: torch.device) -> Built:
    tensor = join(plan)
    return Built(PlainEngine(plan, build_model(plan, {}, device, tensor), device, tensor))


KIND = EngineKind(name="plain", missing=lambda: None, join=join_torch, build=_build)
