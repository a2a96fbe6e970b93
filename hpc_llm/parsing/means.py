"""Means and percentiles of what step lines print, in bounded memory.

Values are kept as they are up to `EXACT` of them; beyond that they are counted in classes 0.1 % wide, so the
percentiles of a log of any length cost little.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import mul, truediv

from hpc_llm.records import metrics

EXACT = 1 << 17
CLASSES_PER_E = 1000
"""Classes per factor of e: each is 0.1 % wide."""


def _clean(value: float) -> float:
    """Without the noise of summing up: the mean of equal values is that value."""
    return float(f"{value:.12g}")


class Distribution:
    """Positive values, each standing for one step or more, with the first one set apart as a possible warm-up.

    The mean of times is arithmetic, that of rates is over equal amounts of work: harmonic. Rates have no percentiles.
    """

    def __init__(self, rates: bool = False) -> None:
        self.rates = rates
        self.first: float | None = None
        self.count = 0
        self.weight = 0.0
        self.total = 0.0
        """Of times, or of the inverse of rates."""
        self.left_out = 0.0
        """Steps whose value could not be one, as with a clock that was set back."""
        self._exact = array("d")
        self._classes: Counter[int] = Counter()

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add one value that stands for `weight` steps; others than positive finite ones say nothing and are left out."""
        self.extend([value], weight)

    def extend(self, values: Sequence[float], weight: float = 1.0) -> None:
        """Add values in the order printed, each of which stands for `weight` steps."""
        if not values:
            return
        if not (min(values) > 0.0 and max(values) < math.inf and math.isfinite(sum(values))):
            self.left_out += weight * sum(not 0.0 < v < math.inf for v in values)
            values = [v for v in values if 0.0 < v < math.inf]
        if self.first is None and values:
            self.first, values = values[0], values[1:]
        if not values:
            return
        self.count += len(values)
        self.weight += weight * len(values)
        self.total += weight * sum(map(truediv, repeat(1.0), values) if self.rates else values)
        if not self.rates:
            self._keep(values)

    def _keep(self, values: Iterable[float]) -> None:
        self._exact.extend(values)
        if len(self._exact) > EXACT:
            scaled = map(mul, map(math.log, self._exact), repeat(float(CLASSES_PER_E)))
            self._classes.update(map(math.floor, scaled))
            self._exact = array("d")

    def merge(self, later: Distribution, weight: float = 1.0, without_first: bool = False) -> None:
        """Add the values of `later`, which come after all of these; its first one stands for `weight` steps."""
        self.left_out += later.left_out
        if later.first is None:
            return
        if not without_first:
            self.add(later.first, weight)
        self.count += later.count
        self.weight += later.weight
        self.total += later.total
        self._classes.update(later._classes)
        self._keep(later._exact)

    def take_first(self, weight: float = 1.0) -> None:
        """Count the first value with the others: too few came after it to do without."""
        if self.first is not None:
            first, self.first = self.first, 0.0
            self.add(first, weight)

    def mean(self) -> float | None:
        """Mean over the steps that the values stand for; None of nothing."""
        if not self.weight:
            return None
        return _clean(self.weight / self.total if self.rates else self.total / self.weight)

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
