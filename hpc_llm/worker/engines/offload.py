"""Flat units whose fp32 states lie on the host: the device holds the parameters, and of gradients those of a few units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.engines.flat import FlatEngine
from hpc_llm.worker.engines.flat_gradients import FlatGradients
from hpc_llm.worker.engines.held import Bytes, bytes_of
from hpc_llm.worker.engines.host_gradients import HostGradients
from hpc_llm.worker.engines.host_memory import HostMemory
from hpc_llm.worker.engines.host_states import HostStates
from hpc_llm.worker.engines.host_step import HostStep
from hpc_llm.worker.engines.streamed_step import StreamedStep
from hpc_llm.worker.model.shapes import DTYPES


class OffloadEngine(FlatEngine):
    """As FlatEngine; the optimizer steps what lies on the host, on the device or on the host, as the plan says."""

    has_copies = False

    def __init__(self, plan: Plan, model: Any, device: torch.device) -> None:
        self._memory = HostMemory(device)
        super().__init__(plan, model, device)

    def _make_gradients(self, plan: Plan) -> FlatGradients:
        kind, several = DTYPES[plan.engine.reduce_precision], plan.batch.gradient_accumulation_steps > 1
        how = {"accumulates": several, "overlap": plan.engine.overlap}
        return HostGradients(self._units, kind, self._beside, self._memory, **how)

    def _make_optimizer(self, plan: Plan) -> torch.optim.Optimizer:
        on_host, overlap = plan.engine.offloaded_step == "host", plan.engine.overlap
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
