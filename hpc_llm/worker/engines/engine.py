"""What an engine is: it carries out the training steps, on one rank and with all others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpc_llm.planning.experiment import Plan


@dataclass(frozen=True)
class StepEnd:
    """What is known when the weights have been changed."""

    grad_norm: float | torch.Tensor | None
    """Of the gradients of all ranks, before clipping; None where the engine does not say."""
    skipped: bool
    """The loss scaler threw the step away."""


class Engine(ABC):
    """A model in training. Of one step: forward and backward for each micro batch, then `step`."""

    module: Any
    """The model itself, as transformers or PEFT made it."""
    averages_over: int
    """By how many parts it divides the sum of the gradients: ranks, or ranks times micro batches."""

    @abstractmethod
    def forward(self, **inputs: Any) -> Any:
        """The model's output."""

    @abstractmethod
    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add the gradients of `loss`; `last` says that no micro batch of this step follows."""

    @abstractmethod
    def step(self) -> StepEnd:
        """Clip the gradients, change the weights, forget the gradients."""

    @property
    @abstractmethod
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's; their `lr` may be set before a step."""

    @property
    def learning_rate(self) -> float | None:
        """That of the coming step."""
        groups = self.param_groups
        return float(groups[0]["lr"]) if groups else None

    @abstractmethod
    def held(self) -> dict[str, int]:
        """How many numbers lie on this rank: `parameters` of the model, and `optimizer`, their copies in fp32."""

    def close(self) -> None:
        """Give back what is held and leave the process group. Nothing trains after it."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


@dataclass(frozen=True)
class Built:
    """An engine that is ready to train."""

    engine: Engine
    sentences: tuple[str, ...] = ()
    """One for each thing that runs otherwise than the plan says."""


@dataclass(frozen=True)
class EngineKind:
    """One engine among others: what its module exports as KIND."""

    name: str
    missing: Callable[[], str | None]
    """What this node's Python lacks for it, in a clause; None where it can run."""
    join: Callable[[torch.device], None]
    """Join the other ranks, whose environment is applied already."""
    build: Callable[[Plan, torch.device], Built]
    """The plan's model in this engine."""


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that a gradient changes. Raises WorkerError where there are none."""
    from hpc_llm.errors import WorkerError

    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise WorkerError("no parameter of the model trains: look at the plan's quantization and peft.")
    return found


def join_torch(device: torch.device) -> None:
    """Join the other ranks with torch alone."""
    if device.type == "cuda":
        torch.distributed.init_process_group("nccl", device_id=device)
    else:
        torch.distributed.init_process_group("gloo")
