"""Where the clock of a progress bar goes on and its steps do not: a save or an evaluation of which no line says so.

A bar counts all the time that passes. What passes between two neighbouring readings is that of the steps between them, unless it is
many times as long: then something else took place.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_READING = re.compile(
    rb"^ *\d{1,3}%(?:\|[^|\n]*\|)? *(\d{1,9})/([1-9]\d{0,8}) \[(?:(\d{1,4}):)?(\d\d):(\d\d)<", re.MULTILINE
)
_MOST = 8
"""Bars of different lengths that are followed: those of training and evaluation are two."""
_LONGEST = 64
"""Intervals of a bar that are kept to be looked at."""
_TIMES = 4.0
"""As many times the usual time of its steps lasts an interval in which something else took place: a save of 40 s between steps of 4.5 s."""
_DRAWN_S = 1.0
"""As often a bar is drawn at least, where each step is shorter; states further apart are those of a log with lines left out."""
_MOVED = 2
"""So many readings of another bar that goes on tell that it is drawn while this one stands still."""
_ROUNDING_S = 2.0
"""A bar tells whole seconds."""


@dataclass(frozen=True)
class Pauses:
    """What the clock of a bar shows."""

    count: int
    time_s: float
    """Of the pauses, less the steps in them."""
    step_s: float
    """A step without them."""


@dataclass
class _Bar:
    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    reached: tuple[int, int] | None = None
    """The first reading at the step at which it stands: what is drawn there again later is of what follows, and of no step that is done."""
    standing: deque[int] = field(default_factory=lambda: deque(maxlen=_LONGEST))
    """Seconds between the readings since."""
    steps: int = 0
    time_s: int = 0
    intervals: int = 0
    longest: list[tuple[int, int]] = field(default_factory=list)
    """Seconds and steps of the longest intervals, as a heap."""
    beside: list[int] = field(default_factory=lambda: [0, 0])
    """How often another bar moved while this one stood still, and the seconds of that."""
    moved_beside: int = 0
    """Readings of another bar that moved, since the last one of this."""
    first_beside: int = 0
    """And before the first one."""

    def read(self, done: int, time_s: int) -> None:
        """The next reading; one that goes back is of another bar, or of another process."""
        moved_beside, self.moved_beside = self.moved_beside, 0
        if self.first is None:
            self.first_beside = moved_beside
        before, self.last = self.last, (done, time_s)
        self.first = self.first or self.last
        if self.reached is None or self.reached[0] != done:
            self.reached = self.last
            self.standing.clear()
        elif before is not None:
            self.standing.append(time_s - before[1])
        if before is None or before[0] < 1:  # the first step warms up
            return
        steps, time_s = done - before[0], time_s - before[1]
        if not steps and time_s > 0 and moved_beside >= _MOVED:
            self.beside = [self.beside[0] + 1, self.beside[1] + time_s]
        elif steps >= 0 and time_s >= 0 and (steps or time_s):
            self.steps, self.time_s, self.intervals = self.steps + steps, self.time_s + time_s, self.intervals + 1
            self._keep((time_s, steps))

    def _keep(self, interval: tuple[int, int]) -> None:
        if len(self.longest) < _LONGEST:
            heapq.heappush(self.longest, interval)
        elif interval > self.longest[0]:
            heapq.heapreplace(self.longest, interval)

    def merge(self, later: _Bar) -> None:
        if later.first is not None:
            self.moved_beside += later.first_beside
            self.read(*later.first)
            self.moved_beside = 0
        self.moved_beside += later.moved_beside
        self.last = later.last or self.last
        if later.reached is not None and (self.reached is None or later.reached[0] != self.reached[0]):
            self.reached = later.reached
            self.standing.clear()
        self.standing.extend(later.standing)
        self.beside = [one + other for one, other in zip(self.beside, later.beside, strict=True)]
        self.steps, self.time_s = self.steps + later.steps, self.time_s + later.time_s
        self.intervals += later.intervals
        for interval in later.longest:
            self._keep(interval)

    def pauses(self, to_the_end: bool) -> Pauses | None:
        """The intervals that are many times as long as the steps in them, by what all shorter ones took; `to_the_end` with that behind
        the last step."""
        longest, all_s = list(self.longest), self.time_s
        for still in self.standing if not to_the_end else ():
            if (still, 0) in longest:
                longest.remove((still, 0))
                all_s -= still
        aside = sorted(longest, reverse=True)[: max(1, self.intervals // 4)]
        steps, time_s = self.steps - sum(n for _, n in aside), all_s - sum(t for t, _ in aside)
        if steps < 1:
            return None
        usual = time_s / steps
        drawn = [(t, n) for t, n in aside if n <= 1 or n * usual <= _DRAWN_S]
        far = [(t, n) for t, n in drawn if t > _TIMES * usual * max(1, n) + _ROUNDING_S]
        near = self.steps - sum(n for _, n in far), all_s - sum(t for t, _ in far)
        step_s = near[1] / near[0]
        count = len(far) + self.beside[0]
        return Pauses(count, sum(t - n * step_s for t, n in far) + self.beside[1], step_s) if count else None


@dataclass
class Bars:
    """The bars of a run, by how many steps each has."""

    of_length: dict[int, _Bar] = field(default_factory=dict)
    moves: int = 0
    """Readings of bars that went on."""

    def look(self, text: bytes) -> None:
        """Go on with `text`."""
        if b"%|" not in text and b"% " not in text:  # notebooks and narrow terminals have no graphic
            return
        for done, total, hours, minutes, seconds in _READING.findall(text):
            bar = self._bar(int(total))
            if bar is not None:
                self._note_beside(bar, int(done))
                bar.read(int(done), (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds))

    def _note_beside(self, moving: _Bar, done: int) -> None:
        """Say to the other bars that this one goes on meanwhile; one that is drawn anew where it stands does not."""
        if moving.last is not None and done > moving.last[0]:
            self.moves += 1
            for bar in self.of_length.values():
                bar.moved_beside += bar is not moving

    @property
    def moved(self) -> bool:
        """Whether a step of any was seen to be done."""
        return any(bar.last is not None and bar.last[0] > 0 for bar in self.of_length.values())

    def _bar(self, total: int) -> _Bar | None:
        if total not in self.of_length and len(self.of_length) < _MOST:
            self.of_length[total] = _Bar(moved_beside=self.moves)
        return self.of_length.get(total)

    def merge(self, later: Bars) -> None:
        """Go on with what a later piece of the log saw."""
        for total, known in self.of_length.items():
            known.moved_beside += later.moves if total not in later.of_length else 0
        for total, one in later.of_length.items():
            if (bar := self._bar(total)) is not None:
                bar.merge(one)
        self.moves += later.moves

    def pauses(self, to_the_end: bool) -> Iterator[tuple[int, Pauses]]:
        """The length of each bar that stood still, and what shows it; `to_the_end` where time behind its last step counts."""
        for total, bar in self.of_length.items():
            if (pauses := bar.pauses(to_the_end)) is not None:
                yield total, pauses

    def reached(self) -> Iterator[tuple[int, int, int]]:
        """The length of each bar, the step at which it stands, and the seconds after which it came there."""
        for total, bar in self.of_length.items():
            if bar.reached is not None:
                yield total, *bar.reached
