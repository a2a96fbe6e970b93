"""Plain PyTorch: the whole model on each rank, gradients averaged among them (DDP)."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpc_llm.plan.experiment import Plan
from hpc_llm.worker.engines.engine import Built, Engine, EngineKind, StepEnd, join_torch, trainable
from hpc_llm.worker.engines.stepping import Masters, Stepper
from hpc_llm.worker.model.build import build_model

_BUCKET = 2**26
"""Numbers that are averaged at once."""


class PlainEngine(Engine):
    """Trains `model`, which is on its device. Its low-precision weights follow fp32 copies."""

    def __init__(self, plan: Plan, model: Any, device: torch.device) -> None:
        self.module = model
        self.averages_over = plan.world_size
        self._masters = Masters(trainable(model))
        self._stepper = Stepper(plan, self._masters.parameters, device)
        # With several micro batches their sum is kept in fp32 and averaged once, for which DDP has no way.
        self._averages_itself = plan.world_size > 1 and plan.gradient_accumulation_steps > 1
        self._model = model
        if plan.world_size > 1:
            self._model = DistributedDataParallel(
                model, device_ids=[device] if device.type == "cuda" else None, gradient_as_bucket_view=True
            )

    def forward(self, **inputs: Any) -> Any:
        with self._model.no_sync() if self._averages_itself else contextlib.nullcontext():
            return self._model(**inputs)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        self._stepper.scaled(loss).backward()
        self._masters.collect()
        if last and self._averages_itself:
            average([master.grad for master in self._masters.parameters if master.grad is not None])

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
        gc.collect()
        super().close()

    def held(self) -> dict[str, int]:
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        return {"parameters": parameters, "optimizer": self._stepper.held}


def average(gradients: list[torch.Tensor]) -> None:
    """Make each the mean over all ranks, many at once. Collective."""
    bucket: list[torch.Tensor] = []
    for gradient in [*gradients, None]:
        if bucket and (gradient is None or sum(one.numel() for one in bucket) + gradient.numel() > _BUCKET):
            flat = torch.cat([one.flatten() for one in bucket])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            parts = flat.split([one.numel() for one in bucket])
            torch._foreach_copy_(bucket, [part.view_as(one) for part, one in zip(parts, bucket, strict=True)])
            bucket = []
        if gradient is not None:
            bucket.append(gradient)


def _build(plan: Plan, device: torch.device) -> Built:
    return Built(PlainEngine(plan, build_model(plan, {}, device), device))


KIND = EngineKind(name="plain", missing=lambda: None, join=join_torch, build=_build)
