"""Means and percentiles of what step lines print, in bounded memory.

Values are kept as they are up to `EXACT` of them; beyond that they are counted in classes 0.1 % wide, so the
percentiles of a log of any length cost little.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from operator import mul

from hpc_llm import metrics

EXACT = 1 << 17
CLASSES_PER_E = 1000
"""Classes per factor of e: each is 0.1 % wide."""


def _clean(value: float) -> float:
    """Without the noise of summing up: the mean of equal values is that value."""
    return float(f"{value:.12g}")


class Distribution:
    """Positive values, each standing for one step or more, with the first one set apart as a possible warm-up."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.count = 0
        self.weight = 0.0
        self.total = 0.0
        self.inverse_total = 0.0
        self._exact = array("d")
        self._classes: Counter[int] = Counter()

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add one value that stands for `weight` steps; others than positive finite ones say nothing and are left out."""
        self.extend((value,), weight)

    def extend(self, values: Iterable[float], weight: float = 1.0) -> None:
        """Add values in the order printed, each of which stands for `weight` steps."""
        kept = [v for v in values if 0.0 < v < math.inf]
        if kept and self.first is None:
            self.first = kept.pop(0)
        if kept:
            self.count += len(kept)
            self.weight += weight * len(kept)
            self.total += weight * math.fsum(kept)
            self.inverse_total += weight * math.fsum(1.0 / v for v in kept)
            self._keep(kept)

    def _keep(self, values: Iterable[float]) -> None:
        self._exact.extend(values)
        if len(self._exact) > EXACT:
            scaled = map(mul, map(math.log, self._exact), repeat(float(CLASSES_PER_E)))
            self._classes.update(map(math.floor, scaled))
            self._exact = array("d")

    def merge(self, later: Distribution, weight: float = 1.0) -> None:
        """Add the values of `later`, which come after all of these; its first one stands for `weight` steps."""
        if later.first is None:
            return
        self.extend((later.first,), weight)
        self.count += later.count
        self.weight += later.weight
        self.total += later.total
        self.inverse_total += later.inverse_total
        self._classes.update(later._classes)
        self._keep(later._exact)

    def take_first(self, weight: float = 1.0) -> None:
        """Count the first value with the others: too few came after it to do without."""
        if self.first is not None:
            first, self.first = self.first, 0.0
            self.extend((first,), weight)

    def mean(self) -> float | None:
        """Arithmetic mean: for times."""
        return _clean(self.total / self.weight) if self.weight else None

    def harmonic_mean(self) -> float | None:
        """Mean of rates over equal amounts of work."""
        return _clean(self.weight / self.inverse_total) if self.weight else None

    def percentile(self, percent: float) -> float | None:
        """The value below which `percent` of the values lie; None when there is none.

        Exact up to `EXACT` values, within 0.1 % beyond.
        """
        if not self._classes:
            return metrics.percentile(self._exact, percent)
        return self._class_at(math.floor(percent / 100 * (self.count - 1)))

    def _class_at(self, index: int) -> float:
        classes = self._classes + Counter(math.floor(math.log(v) * CLASSES_PER_E) for v in self._exact)
        seen = 0
        for number in sorted(classes):
            seen += classes[number]
            if seen > index:
                break
        return math.exp((number + 0.5) / CLASSES_PER_E)
