"""The engine `flat`: rows of a few layers, whole on each rank or brought there from the host."""

from __future__ import annotations

import os

import torch

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.device import torch_release
from hpc_llm.worker.engines.engine import Built, EngineKind, join_torch
from hpc_llm.worker.engines.flat_engine import FlatEngine
from hpc_llm.worker.engines.offload import built
from hpc_llm.worker.model.build import build_model

_OLDEST_TORCH = (2, 6)
"""Of those that were tried, the oldest whose gloo gathers rows."""


def _missing() -> str | None:
    if torch_release() >= _OLDEST_TORCH:
        return None
    return f"it needs torch {'.'.join(map(str, _OLDEST_TORCH))}, here is {torch.__version__}"


def _join(device: torch.device) -> None:
    # What a graph's collectives register of memory that grows in segments may be gone when it is replayed.
    os.environ.setdefault("NCCL_GRAPH_REGISTER", "0")
    join_torch(device)


def _build(plan: Plan, device: torch.device) -> Built:
    if plan.engine.offloaded_step == "none":
        return Built(FlatEngine(plan, build_model(plan, {}, device), device))
    return Built(built(plan, device))


KIND = EngineKind(name="flat", missing=_missing, join=_join, build=_build)
