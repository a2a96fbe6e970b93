"""Times, losses and memory of the training steps, read without making a step wait.

A step's time is from the end of the step before to its own end, so that nothing between steps is lost: two events on
the GPU's stream, or two readings of the clock on the CPU. The host's clock runs beside them. Losses stay on the device and are copied to the host behind the step's work; the
values are picked up between later steps, once the device has got there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.worker import device as devices
from hpc_llm.worker.loss import Loss
from hpc_llm.worker.measure.window import Window


@dataclass(frozen=True)
class MeasuredStep:
    """One optimizer step. Missing is None."""

    number: int
    """From 1."""
    loss: float | None
    """Mean over all predicted tokens of the global batch, nats; may be NaN. None where no token of it is to be predicted."""
    targets: int
    """Predicted tokens of the global batch: those that are masked are none."""
    time_s: float
    learning_rate: float | None
    grad_norm: float | None
    allocated_bytes: int | None
    peak_allocated_bytes: int | None
    skipped: bool
    """The loss scaler threw the step away."""
    warmup: bool
    ended_at: float
    """Unix time."""


@dataclass(frozen=True)
class _Pending:
    """A step whose numbers the device may not have reached yet."""

    begin: Any
    end: Any
    values: torch.Tensor
    on_host: Any
    facts: dict[str, Any]


class Meter:
    """Measures all steps of this process up to `steps` but its first `warmup_steps`, which are kept and marked as warm-up.

    `done` steps were made before this process went on with the training: its first step is the one behind them. `alike` ranks
    each train on the same samples.
    """

    def __init__(
        self, device: torch.device, steps: int, warmup_steps: int, world_size: int, done: int = 0, alike: int = 1
    ) -> None:
        self.device, self._alike = device, alike
        self.wish: Callable[[], float] = lambda: 0.0
        """What this rank wishes at the end of a step; all ranks learn the sum of all (`wished`)."""
        self.warmup_steps = done + warmup_steps
        self.world_size = world_size
        self.steps: list[MeasuredStep] = []
        """All finished steps, in order."""
        self.held = threading.Lock()
        """While steps are taken up and written down, and by whoever tells of them from another thread."""
        self.window = Window(device)
        """Around the measured steps."""
        self._clock = self.window.clock
        self._host = torch.zeros(steps, 4, dtype=torch.float64, pin_memory=device.type == "cuda")
        self._pending: deque[_Pending] = deque()
        self._number = done
        self._done = done
        self._begin: Any = None

    @property
    def measured(self) -> list[MeasuredStep]:
        return [step for step in self.steps if not step.warmup]

    def begin_step(self) -> None:
        self._number += 1
        if self._number == self.warmup_steps + 1:
            self._begin = self.window.open()
        elif self._begin is None:
            self._begin = self._clock.mark()

    def end_step(self, loss: Loss, learning_rate: float | None, grad_norm: Any, skipped: bool) -> None:
        """Close the step; `loss` is of this rank's micro batches. Nothing here waits."""
        end = self._clock.mark()
        norm_on_device = isinstance(grad_norm, torch.Tensor) and grad_norm.device.type != "cpu"
        values = self._on_device(loss, grad_norm if norm_on_device else None)
        row = self._host[self._number - 1]
        row.copy_(values, non_blocking=True)
        facts = {
            "number": self._number,
            "learning_rate": learning_rate,
            "grad_norm": None if grad_norm is None or norm_on_device else float(grad_norm),
            "norm_on_device": norm_on_device,
            "allocated_bytes": devices.allocated_bytes(self.device),
            "peak_allocated_bytes": devices.peak_allocated_bytes(self.device),
            "skipped": skipped,
            "ended_at": time.time(),
        }
        self._pending.append(_Pending(self._begin, end, values, self._clock.mark(), facts))
        self._begin = end

    def finished_steps(self, wait: bool = False) -> Iterator[MeasuredStep]:
        """The steps that are done since the last call; with `wait`, all of them."""
        if wait:
            devices.synchronize(self.device)
        while self._pending and (wait or self._clock.reached(self._pending[0].on_host)):
            step = self._read(self._pending.popleft())
            self.steps.append(step)
            yield step
        self.window.look(at_once=wait)

    def wished(self) -> float:
        """The sum of what all ranks wished, the same on each, whenever it is asked behind the same step.

        On a GPU it is that of the step before, which is over when the one behind it has been handed over: nothing waits.
        """
        number = self._number - (self.device.type == "cuda")
        if number <= self._done:
            return 0.0
        for pending in self._pending:
            if pending.facts["number"] == number:
                self._clock.wait(pending.on_host)
        return float(self._host[number - 1, 3])

    def close(self) -> None:
        """End the measured window: the device is idle at both of its ends."""
        self.window.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done within, between two steps, belongs to no step: evaluation, saving."""
        with self.window.interrupted():
            yield
        self._begin = None

    def _on_device(self, loss: Loss, grad_norm: torch.Tensor | None) -> torch.Tensor:
        """(mean loss of all predicted tokens, gradient norm, number of these tokens, wishes) as one small tensor on the device."""
        total = loss.total.detach().double().reshape(1)
        targets = loss.targets
        count = torch.full_like(total, targets) if isinstance(targets, int) else targets.double().reshape(1)
        sums = torch.cat([total, count, torch.full_like(total, self.wish())])
        if self.world_size > 1:
            dist.all_reduce(sums)
            if self._alike > 1:  # ranks that share layers have counted the same
                sums[:2] /= self._alike
        mean = sums[:1] / sums[1:2]
        norm = mean if grad_norm is None else grad_norm.detach().double().reshape(1)
        return torch.cat([mean, norm, sums[1:]])

    def _read(self, pending: _Pending) -> MeasuredStep:
        facts = dict(pending.facts)
        number = facts.pop("number")
        loss, norm, targets, _ = self._host[number - 1].tolist()
        if facts.pop("norm_on_device"):
            facts["grad_norm"] = norm
        return MeasuredStep(
            number=number,
            loss=loss if targets else None,
            targets=int(targets),
            time_s=self._clock.seconds(pending.begin, pending.end),
            warmup=number <= self.warmup_steps,
            **facts,
        )
