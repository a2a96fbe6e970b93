"""How far apart the step lines of a run are: whether lines are missing between them. Bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

_MOST = 64
"""Distances that are kept apart; a log with more of them has no usual one."""
_FAR = 3.0
"""Times the usual distance, from which on lines are missing: the last of a run, or one behind an evaluation, is nearer."""


class Gaps:
    """Distances between neighbouring step lines, in steps."""

    def __init__(self) -> None:
        self._seen: Counter[float] = Counter()
        self._ends: dict[float, float] = {}
        """The step behind a distance, where it was seen last."""
        self._latest = 0.0

    def add(self, before: float | None, order: float, count: int = 1) -> None:
        """A line of step `order` behind one of step `before`, and so many more that far apart; the same step again is no distance."""
        gap = order - before if before is not None else 0.0
        if gap > 0 and count > 0 and (gap in self._seen or len(self._seen) < _MOST):
            self._seen[gap] += count
            self._ends[gap] = order
            self._latest = gap

    def add_all(self, orders: Iterable[float]) -> None:
        """The lines of these steps."""
        if isinstance(orders, range):
            if len(orders) > 1:
                self.add(orders[-2], orders[-1], len(orders) - 1)
            return
        for before, order in pairwise(orders):
            self.add(before, order)

    def merge(self, later: Gaps) -> None:
        """Add those of the next piece of the log."""
        for gap, count in later._seen.items():
            self.add(later._ends[gap] - gap, later._ends[gap], count)
        self._latest = later._latest or self._latest

    def hole(self, first: float | None) -> str | None:
        """What shows that lines of steps are missing, in words; None where nothing does. `first` is the number of the first line.

        A line tells of the steps since the line before, where the program prints one every so many steps. In an excerpt it tells of
        far fewer than lie between it and the last line that was left.

        >>> regular, excerpt = Gaps(), Gaps()
        >>> regular.add_all([1, 2, 10, 20]), excerpt.add_all([6502, 6503, 6504, 8600])
        (None, None)
        >>> regular.hole(1), excerpt.hole(6502)
        (None, 'lines are missing: 2096 steps lie between two of them, 1 between others')
        """
        if not self._seen:
            return None
        usual = min(self._seen, key=lambda gap: (-self._seen[gap], gap))
        largest = max(self._seen)
        # a program may print its first steps one by one, and go over to every so many
        is_regular = largest == self._latest and self._ends[largest] % largest in (0, 1)
        if largest >= _FAR * usual and self._seen[largest] == 1 and not is_regular:
            return f"lines are missing: {largest:g} steps lie between two of them, {usual:g} between others"
        if sum(self._seen.values()) == 1 and usual > _FAR and first is not None and not _begins(first, usual):
            return f"lines may be missing: {usual:g} steps lie between the two that are there"
        return None


def _begins(first: float, gap: float) -> bool:
    """Whether a program that prints a line every `gap` steps would have printed its first one there."""
    return first <= 1 or first % gap in (0, 1)


def interval(first: float | None, second: float | None, end: object) -> float | None:
    """How many steps apart the lines of a run are by its first two; None where they do not tell.

    Its `end` may get a line out of turn: the first line's number is then a multiple of what is asked for, which is longer.

    >>> interval(10, 20, None), interval(500, 900, 900), interval(500, 525, 525)
    (10, 500, None)
    """
    if first is None or second is None:
        return None
    if second != end or second - first >= first:
        return second - first
    return first if first <= 2 * (second - first) else None
