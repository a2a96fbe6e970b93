"""The training steps: forward, backward, optimizer, and the numbers of each step as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import torch
import torch.distributed as dist

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.schedule import rate_factor
from hpc_llm.records.files import new_file
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.device import synchronize
from hpc_llm.worker.engines import Engine, StepEnd
from hpc_llm.worker.loss import Loss, sum_targets
from hpc_llm.worker.measure.meter import MeasuredStep, Meter
from hpc_llm.worker.result import plan_tokens_per_step, step_row

GIB = 2**30


class Between(Protocol):
    """What is done between steps, on every rank at the same ones: evaluation, saving."""

    def is_due(self, number: int) -> bool:
        """Whether something is to be done behind step `number`; the same answer on every rank. Cheap."""

    def act(self, number: int) -> bool:
        """Do it, at all ranks at once; False ends the training here. Its time belongs to no step."""


def run_steps(
    engine: Engine,
    batches: Iterator[Batch],
    meter: Meter,
    plan: Plan,
    log: StepLog | None,
    *,
    done: int = 0,
    between: Sequence[Between] = (),
) -> None:
    """Run the steps of `plan` behind the first `done`. Every rank measures; `log`, on rank 0, writes them down."""
    for number in range(done + 1, plan.workload.steps + 1):
        meter.begin_step()
        set_rate(engine, plan, number)
        rate = engine.learning_rate  # a scheduler of DeepSpeed changes it when the step is done
        loss, end = take_step(engine, batches, plan)
        meter.end_step(loss, rate, end.grad_norm, end.skipped)
        _write(log, meter)
        if not _go_on(between, number, meter, log):
            break
    meter.close()
    _write(log, meter, wait=True)


def _go_on(between: Sequence[Between], number: int, meter: Meter, log: StepLog | None) -> bool:
    """Do what is due behind a step; False ends the training."""
    due = [one for one in between if one.is_due(number)]
    if not due:
        return True
    with meter.paused():
        _write(log, meter, wait=True)
        answers = [one.act(number) for one in due]  # all of them act, whatever the first one says
    return all(answers)


def set_rate(engine: Engine, plan: Plan, number: int) -> None:
    """The learning rate of step `number`; behind the ramp a constant one is left as it is, to DeepSpeed's scheduler perhaps."""
    training = plan.training
    if number > training.lr_ramp_steps and training.lr_schedule == "constant":
        return
    factor = rate_factor(training.lr_schedule, number, training.lr_ramp_steps, training.steps)
    for group in engine.param_groups:
        group["lr"] = plan.optimizer.lr * factor


def take_step(engine: Engine, batches: Iterator[Batch], plan: Plan) -> tuple[Loss, StepEnd]:
    """One optimizer step, in which each predicted token of all micro batches and ranks counts the same."""
    micro_batches = [next(batches) for _ in range(plan.batch.gradient_accumulation_steps)]
    targets = sum_targets(micro_batches)
    # An engine averages gradients over parts, whatever number of tokens each part holds.
    weight = engine.averages_over / _targets_of_all(targets, plan)
    total: Any = 0.0
    for number, batch in enumerate(micro_batches, start=1):
        total = total + engine.learn(batch, weight, last=number == len(micro_batches)).double()
    return Loss(total, targets), engine.step()


def _targets_of_all(targets: int | torch.Tensor, plan: Plan) -> int | torch.Tensor:
    """Predicted tokens of the global batch, of which this rank has `targets`; 1 where all of them are masked."""
    if isinstance(targets, int):
        return max(targets * plan.parallel.data, 1)
    if plan.parallel.world_size > 1:
        targets = targets.clone()
        dist.all_reduce(targets)
        targets = targets * plan.parallel.data // plan.parallel.world_size  # ranks that share a batch counted it each
    return targets.clamp(min=1)


def _write(log: StepLog | None, meter: Meter, wait: bool = False) -> None:
    """Write down the steps that are done; whoever holds the meter sees each of them in both places or in neither."""
    if wait:
        synchronize(meter.device)  # before it is held: a collective may never end
    with meter.held:
        for step in meter.finished_steps(wait):
            if log is not None:
                log.write(step)


class StepLog:
    """Writes each step to steps.jsonl and, in the format of the HPC-II homework's program, to stdout."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._file: IO[str] = new_file(path)  # the steps of another try are never touched
        self._tokens = plan_tokens_per_step(plan)
        self._steps = plan.workload.steps

    def write(self, step: MeasuredStep) -> None:
        row = step_row(step, self._tokens)
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        loss = "none, no token is to be predicted" if step.loss is None else f"{step.loss:.4f}"
        print(
            f"[Step {step.number}/{self._steps}] Loss: {loss} | "
            f"Global Tokens/s: {row['tokens_per_second'] or 0.0:.2f} | "
            f"GPU Mem (GB): {_gib(step.allocated_bytes)} | "
            f"Peak Mem: {_gib(step.peak_allocated_bytes)}",
            flush=True,
        )

    def close(self) -> None:
        self._file.close()


def print_summary(result: dict[str, Any]) -> None:
    """The homework's last lines; GB there means GiB. The time is that of the measured steps, which the line above counts."""
    print(f"Measured {result['measured_steps']} steps after {result['warmup_steps']} of warm-up.")
    print(f"Training done in {result['measured_window_s'] or 0.0:.2f} seconds.")
    print(f"Avg Global Tokens/s: {result['tokens_per_second'] or 0.0:.2f}")
    print(f"Peak GPU Mem (GB): {_gib(result['peak_allocated_bytes'])}", flush=True)


def _gib(size_bytes: int | None) -> str:
    """As the homework prints memory; without a GPU there is none, which is not 0."""
    return "n/a" if size_bytes is None else f"{size_bytes / GIB:.2f}"
