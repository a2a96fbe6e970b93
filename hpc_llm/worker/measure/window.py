"""A span of work that is measured: its time by the host's clock and the GPU's, and the most memory that it took.

The device is idle at both of its ends. What is done between them is not this module's business.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from hpc_llm.worker import device as devices

_LOOK_AT_DEVICE_EVERY_S = 1.0


class _GpuClock:
    """Marks are events on the current stream."""

    _Event: Any = torch.cuda.Event

    def mark(self) -> Any:
        event = self._Event(enable_timing=True)
        event.record()
        return event

    def reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000


class _HostClock:
    """Marks are readings of the clock: on the CPU a call returns when its work is done."""

    def mark(self) -> float:
        return time.perf_counter()

    def reached(self, mark: float) -> bool:
        return True

    def wait(self, mark: float) -> None:
        pass

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


def clock_of(device: torch.device) -> Any:
    """What gives marks in time, says whether the device has reached one, and the seconds between two."""
    return _GpuClock() if device.type == "cuda" else _HostClock()


class Window:
    """Opened once, closed once. Missing is None: before it is closed, and where the device cannot say."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.clock = clock_of(device)
        self.elapsed_s: float | None = None
        """Wall time by the host's clock, without what `interrupted` left out."""
        self.device_elapsed_s: float | None = None
        """The same by the GPU's clock; None on the CPU, which has no other."""
        self.span: tuple[float, float] | None = None
        """Begin and end, Unix time."""
        self.left_out: list[tuple[float, float]] = []
        """What of it `interrupted` left out, likewise."""
        self.peak_device_bytes: int | None = None
        self._began: float | None = None
        self._mark: Any = None
        self._left_out_s = self._left_out_device_s = 0.0
        self._looked_at = 0.0

    def open(self) -> Any:
        """Begin, with peaks of memory forgotten; the mark of the beginning."""
        devices.synchronize(self.device)
        devices.reset_peak_memory(self.device)
        self.peak_device_bytes = None
        self._left_out_s = self._left_out_device_s = 0.0
        self.left_out = []
        self._mark = self.clock.mark()
        self._began = time.perf_counter()
        return self._mark

    def close(self) -> None:
        """End. Without a beginning nothing is known but the memory."""
        mark = self.clock.mark()
        devices.synchronize(self.device)
        if self._began is not None:
            whole = time.perf_counter() - self._began
            now = time.time()
            self.span = (now - whole, now)
            self.elapsed_s = whole - self._left_out_s
            if self.device.type == "cuda":
                self.device_elapsed_s = self.clock.seconds(self._mark, mark) - self._left_out_device_s
        self.look(at_once=True)

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """What is done within belongs to the window's span, not to its elapsed time."""
        devices.synchronize(self.device)
        began, mark = time.perf_counter(), self.clock.mark()
        try:
            yield
        finally:
            end = self.clock.mark()
            devices.synchronize(self.device)
            took, now = time.perf_counter() - began, time.time()
            self._left_out_s += took
            self.left_out.append((now - took, now))
            self._left_out_device_s += self.clock.seconds(mark, end)

    def look(self, at_once: bool = False) -> None:
        """See how full the device is, once a second at most but for `at_once`."""
        if not at_once and time.monotonic() - self._looked_at <= _LOOK_AT_DEVICE_EVERY_S:
            return
        self._looked_at = time.monotonic()
        used = devices.used_device_bytes(self.device)
        if used is not None:
            self.peak_device_bytes = max(used, self.peak_device_bytes or 0)

    def own_peaks(self) -> dict[str, int | None]:
        """Peak memory of this rank, bytes; the host's is of the whole process life."""
        return {
            "peak_allocated_bytes": devices.peak_allocated_bytes(self.device),
            "peak_reserved_bytes": devices.peak_reserved_bytes(self.device),
            "peak_device_bytes": self.peak_device_bytes,
            "peak_host_bytes": devices.peak_host_bytes(),
        }

    def peaks(self, world_size: int) -> dict[str, int | None]:
        """Peak memory in bytes, the largest of all ranks. Collective."""
        return largest_over_ranks(self.own_peaks(), self.device, world_size)


def largest_over_ranks(values: dict[str, int | None], device: torch.device, world_size: int) -> dict[str, int | None]:
    """The largest of each value over all ranks; None where no rank knows it. Collective."""
    if world_size == 1:
        return values
    row = torch.tensor([-1 if value is None else value for value in values.values()], device=device, dtype=torch.int64)
    dist.all_reduce(row, op=dist.ReduceOp.MAX)
    return {key: None if value < 0 else value for key, value in zip(values, row.tolist(), strict=True)}
