"""The steps that a profiler of a GPU's maker, which stands around this process, is to look at: it is told where they begin and end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from hpc_llm.errors import WorkerError
from hpc_llm.worker import device as devices
from hpc_llm.worker.data.batch import Batch
from hpc_llm.worker.engines import Engine
from hpc_llm.worker.loop import take_step
from hpc_llm.worker.result import Record

STEPS = {"ncu": 1}
"""Of a profiler that takes long over each kernel; the others see three."""
_ROCTX = ("librocprofiler-sdk-roctx.so", "librocprofiler-sdk-roctx.so.1")


def step_under(name: str, record: Record, engine: Engine, batches: Iterator[Batch]) -> None:
    """Take one step that is not looked at, then those that are. Collective."""
    try:
        take_step(engine, batches, record.plan)
        devices.synchronize(engine.device)
        with _window(name, engine.device):
            for _ in range(STEPS.get(name, 3)):
                with _marked("step", engine.device):
                    take_step(engine, batches, record.plan)
                devices.synchronize(engine.device)
    except Exception as error:  # the measurement stands, whatever becomes of this
        print(f"{record.program}: no profile: {type(error).__name__}: {error}", flush=True)


@contextmanager
def _window(name: str, device: torch.device) -> Iterator[None]:
    """What the profiler records; without a GPU it records all of the process."""
    if device.type != "cuda":
        yield
        return
    begin, end = _switches(name)
    begin()
    try:
        yield
    finally:
        end()


def _switches(name: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """How the profiler is told to begin and to end."""
    if name != "rocprof":
        return torch.cuda.profiler.start, torch.cuda.profiler.stop
    library = _roctx()
    return lambda: library.roctxProfilerResume(0), lambda: library.roctxProfilerPause(0)


def _roctx() -> ctypes.CDLL:
    """The library by which rocprofv3 is spoken to. Raises WorkerError where none is there."""
    for name in _ROCTX:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise WorkerError(f"rocprofv3 cannot be told when to begin: {_ROCTX[0]} is not there. Load the module of ROCm.")


@contextmanager
def _marked(what: str, device: torch.device) -> Iterator[None]:
    """A range in the profiler's timeline; torch's NVTX is roctx on AMD's GPUs."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.nvtx.range_push(what)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()
