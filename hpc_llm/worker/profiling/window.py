"""A few more steps behind the measured ones, on all ranks, with torch.profiler on the first of them, or under a program of a GPU's maker.

They come when the result is written and the model is kept, so they change neither; what goes wrong here is said and costs only this.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from hpc_llm.planning.experiment import Plan
from hpc_llm.worker import device as devices
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.engines import Engine
from hpc_llm.worker.loop import take_step
from hpc_llm.worker.profiling import outside
from hpc_llm.worker.profiling.events import BATCH, END, MARK, OPTIMIZER, STEP
from hpc_llm.worker.profiling.summary import summarize
from hpc_llm.worker.result import Record

STEPS = 3
"""Whose mean is told."""
WARM_UP = 1
"""Steps under the profiler that are not told: it sets itself up in the first."""


def profile_steps(record: Record, engine: Engine, batches: Iterator[Batch]) -> None:
    """Profile where the plan asks for it. Collective; with torch.profiler rank 0 leaves the trace and profile.json."""
    name = record.plan.training.profile
    if name is None:
        return
    if name != "torch":
        outside.step_under(name, record, engine, batches)
        return
    is_first = record.ranks.rank == 0
    try:
        with _profiler(engine.device) if is_first else ExitStack() as profiler, _marking(engine):
            for number in range(WARM_UP + STEPS):
                _step(engine, _marked(batches), record.plan, is_told=number >= WARM_UP)
        if is_first:
            _keep(record, profiler)
    except Exception as error:  # the measurement stands, whatever becomes of this
        print(f"{record.program}: no profile: {type(error).__name__}: {error}", flush=True)


def _profiler(device: torch.device) -> Any:
    gpus = [ProfilerActivity.CUDA] if device.type == "cuda" else []
    return profile(activities=[ProfilerActivity.CPU, *gpus])


def _step(engine: Engine, batches: Iterator[Batch], plan: Plan, *, is_told: bool) -> None:
    """One step, whose mark ends when the device has done all of it, so that nothing of it lies outside."""
    devices.synchronize(engine.device)
    with record_function(STEP if is_told else f"{MARK}warm-up"):
        take_step(engine, batches, plan)
        with record_function(END):
            devices.synchronize(engine.device)


@contextmanager
def _marking(engine: Engine) -> Iterator[None]:
    """Marks in the trace where the optimizer's part of a step is."""
    own: Callable[[], Any] = engine.step

    def step() -> Any:
        with record_function(OPTIMIZER):
            return own()

    setattr(engine, "step", step)  # noqa: B010  of this one object, not of its class
    try:
        yield
    finally:
        delattr(engine, "step")


def _marked(batches: Iterator[Batch]) -> Iterator[Batch]:
    while True:
        with record_function(BATCH):
            batch = next(batches)
        yield batch


def _keep(record: Record, profiler: Any) -> None:
    """Write the trace, then what it says."""
    temporary = record.paths.trace.with_name(f".{record.paths.trace.name}")
    try:
        profiler.export_chrome_trace(str(temporary))
        found = summarize(_read(temporary))
        if found is None:
            raise ValueError("the trace holds none of the steps")
        temporary.replace(record.paths.trace)
    except BaseException:  # on a full disk half a trace would take the room that the end record needs
        temporary.unlink(missing_ok=True)
        raise
    record.write(record.paths.profile, {**found, "rank": 0, "trace": record.paths.trace.name, **_of_run(record)})
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in found["shares"].items())
    print(
        f"{record.program}: profile of {found['steps']} steps, {found['step_time_s']:.4g} s each: {shares}", flush=True
    )


def _of_run(record: Record) -> dict[str, Any]:
    """What the step took without a profiler: it slows down what it looks at."""
    times = [step.time_s for step in record.meter.measured] if record.meter is not None else []
    return {"measured_step_time_s": sum(times) / len(times) if times else None, "program": "torch"}


def _read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        found: dict[str, Any] = json.load(file)
    return found
