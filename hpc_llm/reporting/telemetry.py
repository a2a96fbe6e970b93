"""How busy a run's GPUs were over its time: the samples of all of them in few points, whatever the run's length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from hpc_llm.records.files import read_json_lines
from hpc_llm.records.metrics import is_figure
from hpc_llm.records.run import RunPaths

MAX_POINTS = 120
"""Points kept of one run."""
Curve = list[tuple[float, float]]
"""Seconds since the first sample, and the mean utilization of all GPUs around then, 0 to 1."""


class BinnedMeans:
    """Means over bins of time, which double in width whenever there are more than `limit`."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self.limit = limit
        self._width_s = 1.0
        self._origin: float | None = None
        self._bins: dict[int, tuple[float, int]] = {}

    def add(self, time: float, value: float) -> None:
        """Take a value of a moment in Unix time; the clocks of several nodes need not come in order."""
        self._origin = time if self._origin is None else self._origin
        place = math.floor((time - self._origin) / self._width_s)
        total, count = self._bins.get(place, (0.0, 0))
        self._bins[place] = (total + value, count + 1)
        while len(self._bins) > self.limit:
            self._widen()

    def curve(self) -> Curve:
        first = min(self._bins, default=0)
        return [((n - first) * self._width_s, total / count) for n, (total, count) in sorted(self._bins.items())]

    def _widen(self) -> None:
        self._width_s *= 2
        wider: dict[int, tuple[float, int]] = {}
        for place, (total, count) in self._bins.items():
            so_far, known = wider.get(place // 2, (0.0, 0))
            wider[place // 2] = (so_far + total, known + count)
        self._bins = wider


def utilization(paths: RunPaths) -> Curve:
    """The curve of a run, over the GPUs of all its nodes; empty where nothing was recorded."""
    means = BinnedMeans()
    for path in paths.telemetry_files():
        for time, value in _samples(read_json_lines(path)):
            means.add(time, value)
    return means.curve()


def _samples(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[float, float]]:
    for row in rows:
        time, value = row.get("time"), row.get("utilization")
        if _is_possible(time) and _is_possible(value) and 0 <= value <= 1:
            yield time, value


def _is_possible(value: Any) -> TypeGuard[float]:
    """Whether it is a number that a time or a share can be."""
    return is_figure(value) and abs(value) < 1e12
