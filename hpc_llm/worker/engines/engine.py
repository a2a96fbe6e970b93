"""What an engine is: it carries out the training steps, on one rank and with all others."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker.data.batch import Batch, model_inputs
from hpc_llm.worker.device import torch_release
from hpc_llm.worker.engines import checkpoint, placing, state
from hpc_llm.worker.engines.checkpoint import TrainingProgress
from hpc_llm.worker.engines.held import Bytes
from hpc_llm.worker.engines.layout import Layout
from hpc_llm.worker.loss import summed_loss
from hpc_llm.worker.model.flops import full_shape
from hpc_llm.worker.model.prepare import stop_dropout
from hpc_llm.worker.tensor_parallel.group import TensorGroup
from hpc_llm.worker.tensor_parallel.split import gathered, slice_of


@dataclass(frozen=True)
class StepEnd:
    """What is known when the weights have been changed."""

    grad_norm: float | torch.Tensor | None
    """Of the gradients of all ranks, before clipping; None where the engine does not say."""
    skipped: bool
    """The loss scaler threw the step away."""


class Engine(ABC):
    """A model in training. Of one step: forward and backward for each micro batch, then `step`."""

    name: ClassVar[str]
    optimizer_name: str
    """One of planning.optimizers.NAMES."""
    module: Any
    """The model itself, as transformers or PEFT made it."""
    device: torch.device
    fused: Sequence[str] = ()
    """What of the model is fused, as the plan calls it."""
    averages_over: int
    """By how many parts it divides the sum of the gradients: ranks, or ranks times micro batches."""
    tensor: TensorGroup | None = None
    """With which ranks this one shares each layer; None where it has whole layers."""

    @abstractmethod
    def forward(self, **inputs: Any) -> Any:
        """The model's output."""

    @abstractmethod
    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        """Add the gradients of `loss`; `last` says that no micro batch of this step follows."""

    def learn(self, batch: Batch, weight: float | torch.Tensor, *, last: bool) -> torch.Tensor:
        """Add the gradients of the batch's summed loss times `weight`; that sum, unweighted, nats."""
        loss = self.loss(batch)
        self.backward(loss * weight, last=last)
        return loss.detach()

    def loss(self, batch: Batch) -> torch.Tensor:
        """Sum over the predicted tokens of the batch, nats."""
        return summed_loss(self.forward(**model_inputs(batch), use_cache=False).logits, batch)

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
    def held(self) -> dict[str, Bytes]:
        """What lies on this rank between steps: `parameters` of the model, `optimizer` (its states, and copies in fp32).

        `gradients` are those of the first step at its end; they are left out where the engine does not show them.
        """

    def sentences(self) -> list[str]:
        """One for each thing that has run otherwise than the plan says, as far as it showed while training."""
        return []

    def save(self, folder: Path, progress: TrainingProgress, data: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint (see `checkpoint`). Collective, between two steps."""
        checkpoint.save(self, folder, progress, data)

    def load(self, folder: Path) -> TrainingProgress:
        """Go on from a checkpoint, which any engine may have written on any number of ranks. Collective."""
        return checkpoint.load(self, folder)

    @abstractmethod
    def layout(self) -> Layout:
        """Where what trains lies on this rank, under the names of the parameters; a checkpoint is made of that."""

    def steering(self) -> dict[str, Any]:
        """What decides the coming steps besides weights and moments, in JSON: a scale of losses, a schedule of its own."""
        return {}

    def take_steering(self, found: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing to take
        """Go on with what `steering` gave, of this engine or as far as it is known of another."""

    def write_state(self, folder: Path) -> None:
        """Write what trains on this rank, and its moments, into a folder that the others write into as well."""
        state.write(self.placed(), self.optimizer_name, folder)

    def read_state(self, folder: Path) -> None:
        """Take up what `write_state` wrote on any number of ranks, whatever engine it was."""
        state.read(self.placed(), self.optimizer_name, self.module, folder)

    def placed(self) -> Layout:
        """`layout()`, and where in the whole model that lies, and which ranks hold the same."""
        return placing.placed(self.layout(), self.module, self.tensor)

    def whole(self, parameter: nn.Parameter) -> torch.Tensor:
        """The whole of a parameter that may be split among ranks, packed as it is. Collective."""
        return gathered(self.joined(parameter), slice_of(parameter))

    def joined(self, parameter: nn.Parameter) -> torch.Tensor:
        """What this rank multiplies with: the parameter as far as those ranks do not share it that share layers. Collective."""
        return parameter.detach()

    def own_part(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """What this rank alone holds of it, without padding; None where it cannot be seen."""
        return parameter.detach()

    splits: bool = False
    """Whether each rank holds a part of every parameter."""
    copy: int = 0
    """Which whole model this rank's parts are of, where there are several among the ranks."""

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, `forward` computes without dropout and nothing is kept for a backward pass. Between two steps."""
        stop_dropout(self.module)
        try:
            with torch.no_grad():
                yield
        finally:
            self.module.train()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside, as in `evaluating`, the model may also be called by its parts, as its own `generate` does. Behind an evaluation."""
        with self.evaluating():
            yield

    def trained(self) -> str:
        """A digest of the names and shapes of what trains."""
        named = sorted((name, full_shape(each)) for name, each in self.module.named_parameters() if each.requires_grad)
        return hashlib.sha256(repr(named).encode()).hexdigest()

    def frozen_sum(self) -> int | None:
        """A sum over the bytes of what does not train, the same however it is split; None where it cannot be told."""
        frozen = [each for each in self.module.parameters() if not each.requires_grad]
        total = torch.zeros((), dtype=torch.int64, device=self.device)
        for place, parameter in enumerate(frozen, start=1):
            own = self.own_part(parameter)
            if own is None:
                return None
            if self.copy == 0 and (self.tensor is None or self.tensor.rank == 0 or slice_of(parameter) is not None):
                total += own.reshape(-1).view(torch.uint8).sum(dtype=torch.int64).to(self.device) * place
        if self.splits:
            torch.distributed.all_reduce(total)
        elif self.tensor is not None:
            torch.distributed.all_reduce(total, group=self.tensor.group)
        return int(total)

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
        own = {"device_id": device} if torch_release() >= (2, 3) else {}  # older ones go by the current device
        torch.distributed.init_process_group("nccl", **own)
    else:
        torch.distributed.init_process_group("gloo")
