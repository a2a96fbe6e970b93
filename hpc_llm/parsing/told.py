"""The first lines of a run that tell a loss, in bounded memory: with them two tellings of one training are known (`retold`)."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

MOST = 1024
"""So many lines are kept."""


def _numbers() -> array[float]:
    return array("d")


@dataclass
class Told:
    """Where the lines stand, and what they say."""

    places: array[float] = field(default_factory=_numbers)
    """Their steps, or their epochs where a program prints no step."""
    losses: array[float] = field(default_factory=_numbers)
    epochs: array[float] = field(default_factory=_numbers)
    """Of lines that tell the step and the epoch, as those of the Trainer's history do."""
    count: int = 0
    """Lines seen."""
    last: tuple[float, float] = (math.nan, math.nan)
    """The place of the last one, and its epoch beside that."""

    def add(self, losses: Sequence[float], places: Sequence[float | None], epoch: float | None = None) -> None:
        """The next lines; one that tells its epoch, too, comes alone."""
        self.count += len(losses)
        if losses and places and places[-1] is not None:
            self.last = places[-1], math.nan if epoch is None else epoch
        room = MOST - len(self.losses)
        if room <= 0 or len(losses) != len(places):
            return
        self.places.extend(math.nan if place is None else place for place in places[:room])
        self.losses.extend(losses[:room])
        if epoch is not None:
            self.epochs.append(epoch)

    def merge(self, later: Told) -> None:
        """Go on with those of the next piece of the log."""
        room = MOST - len(self.losses)
        if len(self.losses) == self.count:  # else there is a hole between them
            self.places.extend(later.places[:room])
            self.losses.extend(later.losses[:room])
            self.epochs.extend(later.epochs[:room])
        self.count += later.count
        self.last = later.last if later.count else self.last

    @property
    def is_history(self) -> bool:
        """Whether each line tells its step and its epoch."""
        return len(self.epochs) == len(self.losses) > 0

    @property
    def is_whole(self) -> bool:
        """Whether all lines are kept."""
        return self.count == len(self.losses)

    def by(self, of_steps: bool) -> Sequence[float]:
        """The places of the lines: their steps, or their epochs where these are known beside them."""
        return self.epochs if self.is_history and not of_steps else self.places

    def end(self, of_steps: bool) -> float:
        """The place of the last line."""
        return self.last[self.is_history and not of_steps]


def _digits(number: float) -> tuple[int, int]:
    """How many digits it has behind its point, and in all.

    >>> _digits(12.35), _digits(0.004), _digits(2e-05)
    ((2, 4), (3, 1), (5, 1))
    """
    printed, _, power = repr(abs(number)).removesuffix(".0").partition("e")
    whole, _, behind = printed.partition(".")
    return len(behind) - int(power or 0), len((whole + behind).strip("0")) or 1


@dataclass(frozen=True)
class Lines:
    """Lines of one telling, with their places in a unit that the other one has, too."""

    places: Sequence[float]
    losses: Sequence[float]

    @cached_property
    def _digits(self) -> tuple[int, int]:
        """The most digits that one of the losses has behind its point, and in all: zeros at the end of others are not known."""
        known = [_digits(loss) for loss in self.losses if math.isfinite(loss)] or [(0, 0)]
        return max(behind for behind, _ in known), max(all_ for _, all_ in known)

    def rounding(self, loss: float) -> float:
        """By how much a loss may be off here: all are printed with as many digits behind the point, or in all."""
        size = math.floor(math.log10(abs(loss))) if loss and math.isfinite(loss) else 0
        return 0.5 * 10.0 ** max(-self._digits[0], size + 1 - self._digits[1])

    @property
    def rise(self) -> bool:
        """Whether no place is unknown, and none stands before the one above it."""
        return all(one <= other for one, other in pairwise(self.places)) and self.places[-1] == self.places[-1]

    def at(self, place: float, within: float) -> Iterator[float]:
        """The losses of that place, and the last one before it: the Trainer's table shows it beside an evaluation."""
        first, end = bisect_left(self.places, place - within), bisect_right(self.places, place + within)
        yield from self.losses[max(0, min(first, end - 1)) : end]
