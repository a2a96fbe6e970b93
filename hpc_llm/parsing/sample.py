"""Some steps of a run, evenly spread: what a plot needs of a log of any length, in bounded memory.

They are real steps, none averaged. A log may be read in pieces that do not know how many steps stand before them, so
a piece keeps more than anybody draws, and the places of all are evened out once they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

DRAWN = 400
"""Steps drawn of one run; a longer one has every second, fourth, eighth … drawn, and its last."""
_KEPT = 8 * DRAWN
"""Where pieces meet, a step that is drawn is at most so small a part of a distance off its place."""


class LossAt(NamedTuple):
    """What is drawn of a step."""

    step: int | None
    loss: float | None


class StepSample:
    """The steps of one run, or of one piece of its log, in order."""

    def __init__(self) -> None:
        self.count = 0
        """Steps seen."""
        self._every = 1
        self._kept: list[tuple[int, LossAt]] = []
        """With their places among all steps."""
        self._last: LossAt | None = None

    def add(self, step: int | None, loss: float | None) -> None:
        """The next step."""
        self.extend(1, lambda _: LossAt(step, loss))

    def extend(self, count: int, at: Callable[[int], LossAt]) -> None:
        """The next `count` steps, of which `at` gives one by its place, from 0; it is asked for few of them."""
        if count < 1:
            return
        begin, self.count = self.count, self.count + count
        first = -(-begin // self._every) * self._every
        self._kept += [(place, at(place - begin)) for place in range(first, self.count, self._every)]
        self._last = at(count - 1)
        self._thin_out()

    def merge(self, later: StepSample) -> None:
        """The steps of the next piece of the log."""
        self._kept += [(self.count + place, step) for place, step in later._kept]
        self._every = max(self._every, later._every)
        self.count += later.count
        self._last = later._last if later.count else self._last
        self._thin_out()

    def drawn(self) -> list[LossAt]:
        """So many steps as are drawn, the last one of the run included."""
        every = self._every
        while -(-self.count // every) > DRAWN:
            every *= 2
        kept = list(_first_of_each(self._kept, every))
        steps = [step for _, step in kept]
        return steps if self._last is None or kept[-1][0] == self.count - 1 else [*steps, self._last]

    def _thin_out(self) -> None:
        while len(self._kept) > _KEPT:
            self._every *= 2
            self._kept = list(_first_of_each(self._kept, self._every))


def _first_of_each(kept: Iterable[tuple[int, LossAt]], every: int) -> Iterator[tuple[int, LossAt]]:
    """The first of each `every` places."""
    part = -1
    for place, step in kept:
        if place // every != part:
            part = place // every
            yield place, step
