"""The training steps: forward, backward, optimizer, and the numbers of each step as it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch

from hpc_llm.experiment import Plan
from hpc_llm.worker.meter import Meter, Step
from hpc_llm.worker.result import plan_tokens_per_step, step_row

GIB = 2**30


def run_steps(engine: Any, batches: Iterator[torch.Tensor], meter: Meter, plan: Plan, log: StepLog | None) -> None:
    """Run all steps of `plan`. Every rank measures; `log`, on rank 0, writes the steps down as they are known."""
    for _ in range(plan.steps):
        meter.begin_step()
        skipped_before = engine.skipped_steps
        loss = _step(engine, batches, plan.gradient_accumulation_steps)
        skipped = engine.skipped_steps > skipped_before
        meter.end_step(loss, _learning_rate(engine), engine.get_global_grad_norm(), skipped)
        _write(log, meter.finished_steps())
    meter.close()
    _write(log, meter.finished_steps(wait=True))


def _step(engine: Any, batches: Iterator[torch.Tensor], accumulation: int) -> torch.Tensor:
    """One optimizer step; the mean loss of its micro batches, still on the device."""
    total: Any = None
    for _ in range(accumulation):
        tokens = next(batches)
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()
        total = loss.detach() if total is None else total + loss.detach()
    mean: torch.Tensor = total / accumulation
    return mean


def _learning_rate(engine: Any) -> float | None:
    rates = engine.get_lr()
    return float(rates[0]) if rates else None


def _write(log: StepLog | None, steps: Iterator[Step]) -> None:
    for step in steps:
        if log is not None:
            log.write(step)


class StepLog:
    """Writes each step to steps.jsonl and, in the format of the HPC-II homework's program, to stdout."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._file: TextIO = path.open("x", encoding="utf-8")  # the steps of another try are never touched
        self._tokens = plan_tokens_per_step(plan)
        self._steps = plan.steps

    def write(self, step: Step) -> None:
        row = step_row(step, self._tokens)
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        print(
            f"[Step {step.number}/{self._steps}] Loss: {step.loss:.4f} | "
            f"Global Tokens/s: {row['tokens_per_second'] or 0.0:.2f} | "
            f"GPU Mem (GB): {(step.allocated_bytes or 0) / GIB:.2f} | "
            f"Peak Mem: {(step.peak_allocated_bytes or 0) / GIB:.2f}",
            flush=True,
        )

    def close(self) -> None:
        self._file.close()


def print_summary(result: dict[str, Any]) -> None:
    """The homework's last lines; GB there means GiB. The time is that of the measured steps."""
    print(f"Training done in {result['measured_window_s'] or 0.0:.2f} seconds.")
    print(f"Avg Global Tokens/s: {result['tokens_per_second'] or 0.0:.2f}")
    print(f"Peak GPU Mem (GB): {(result['peak_allocated_bytes'] or 0) / GIB:.2f}", flush=True)
