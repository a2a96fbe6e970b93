"""Times between lines that print how long training has run so far, without what else happened in between.

Such a clock goes on while a program evaluates or saves, so the time since the start over the steps is no step time. Between
two lines that nothing else stands between, it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.rules import Value
from hpc_llm.records.relations import half_unit

ENOUGH = 10.0
"""So many times longer than what rounding may add or take away."""


_EPOCH_ROUNDING = 0.006
_LONGER = 1.25
"""So many times longer than by its rate each step of a library takes by the clock where that is no rate of steps; data are loaded outside
its timer, too."""


def seconds(clock: str) -> float | None:
    """Seconds of `1:02:03`, `02:03`, `0:15:19.02` or `1 day, 0:08:23`.

    >>> seconds("1:02:03"), seconds("2 days, 0:00:01"), seconds("soon")
    (3723.0, 172801.0, None)
    """
    match = re.fullmatch(r"(?:(\d+) days?, )?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", clock.strip())
    if not match:
        return None
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


@dataclass(frozen=True)
class ClockReading:
    """What one line says: its step, seconds since the start, the tokens of all devices since then."""

    step: float
    time_s: float
    tokens: float | None
    rounding_s: float
    """How much the printed time may be off."""
    epoch: float | None = None
    """Of a line that says the step nowhere: it is that of the progress bar below."""


def _disagree(one: ClockReading, other: ClockReading) -> bool:
    """Whether both cannot say how many steps an epoch has: it is printed with two digits or more."""
    if one.epoch is None or other.epoch is None:
        return False
    error = _EPOCH_ROUNDING * (one.step + other.step) + one.epoch + other.epoch
    return abs(one.step * other.epoch - other.step * one.epoch) > error


@dataclass
class Clock:
    """The stretches of training that were timed."""

    first: ClockReading | None = None
    last: ClockReading | None = None
    first_is_paused: bool = False
    """Something else happened before the first line."""
    time_s: float = 0.0
    steps: float = 0.0
    tokens: float | None = 0.0
    """None where a line does not say how many."""
    error_s: float = 0.0
    went_back: bool = False
    """The time began anew while the steps went on: the later lines are of a call that went on from a checkpoint."""
    is_paused: bool = False
    """Something else happened before a line without a time that came since."""
    disagrees: bool = False
    """The steps are not those of the lines: a program whose output waits in a buffer prints its lines beside any state of its bar."""
    goes_on: bool = False
    """The last stretch ends at the last line: what is added to it rounds no further."""

    def add(self, line: ClockReading, paused: bool) -> None:
        """The next line; `paused` if something else than training happened since the line before."""
        paused, self.is_paused = paused or self.is_paused, False
        self.disagrees = self.disagrees or any(
            _disagree(one, line) for one in (self.first, self.last) if one is not None
        )
        self.went_back = self.went_back or (self.last is not None and line.time_s < self.last.time_s)
        if self.first is None:
            self.first, self.first_is_paused = line, paused
        elif self.last is not None and not paused and line.step > self.last.step and line.time_s >= self.last.time_s:
            self._count(self.last, line)
        else:
            self.goes_on = False
        self.last = line

    def _count(self, before: ClockReading, line: ClockReading) -> None:
        self.time_s += line.time_s - before.time_s
        self.steps += line.step - before.step
        known = self.tokens is not None and line.tokens is not None and before.tokens is not None
        self.tokens = self.tokens + line.tokens - before.tokens if known else None  # type: ignore[operator]
        self.error_s += 0.0 if self.goes_on else line.rounding_s
        self.goes_on = True

    def pass_over(self, paused: bool) -> None:
        """A line that says nothing of the time; `paused` as with the others."""
        self.is_paused = self.is_paused or paused

    def stop(self) -> None:
        """Lines follow that say nothing of the time."""
        self.last, self.goes_on = None, False

    def merge(self, later: Clock, paused: bool) -> None:
        """Go on with what a later piece of the log saw; `paused` if something else happened before its first line."""
        if later.first is None:
            self.pass_over(later.is_paused)
            return
        self.add(later.first, paused or later.first_is_paused)
        self.is_paused, self.disagrees = later.is_paused, self.disagrees or later.disagrees
        self.went_back = self.went_back or later.went_back
        whole = self.tokens is not None and later.tokens is not None
        self.time_s, self.steps = self.time_s + later.time_s, self.steps + later.steps
        self.tokens = self.tokens + later.tokens if whole else None  # type: ignore[operator]
        self.error_s += later.error_s
        self.last, self.goes_on = later.last, later.goes_on

    @property
    def is_exact(self) -> bool:
        """Whether the times are long enough for what rounding does to them."""
        return not self.disagrees and self.steps > 0 and self.time_s > 0 and self.time_s >= ENOUGH * self.error_s

    @property
    def step_time_s(self) -> float | None:
        """Mean time of a step; None where too little was timed."""
        return self.time_s / self.steps if self.is_exact else None

    @property
    def tokens_per_second(self) -> float | None:
        """Of all devices; None where too little was timed, or no tokens are printed."""
        return self.tokens / self.time_s if self.is_exact and self.tokens else None


@dataclass
class EngineStamps:
    """The clock of the lines in which a library tells its rate, beside the steps between them."""

    last: tuple[float, float] | None = None
    """Step and stamp of the line before."""
    least_s: float | None = None
    """The shortest time of a step from one line to the next: in that at least there was nothing else."""

    def take(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """What the next line says without its stamp, which is taken; a step that does not go on is of another process."""
        left = dict(values)
        step, stamp = left.pop("engine_step", None), left.pop("engine_stamp_s", None)
        if isinstance(step, int) and isinstance(stamp, float):
            before, self.last = self.last, (float(step), stamp)
            if before is not None and step > before[0] and stamp > before[1]:
                self._count((stamp - before[1]) / (step - before[0]))
        return left

    def _count(self, step_time_s: float) -> None:
        self.least_s = step_time_s if self.least_s is None else min(step_time_s, self.least_s)

    def merge(self, later: EngineStamps) -> None:
        """Go on with a later piece of the log; what lies between both is not counted."""
        if later.least_s is not None:
            self._count(later.least_s)
        self.last = later.last or self.last

    def contradicts(self, step_time_s: float) -> bool:
        """Whether no stretch was as short as steps of that time are."""
        return self.least_s is not None and self.least_s > _LONGER * step_time_s


@dataclass
class Stamps:
    """The time that lines say their steps took, beside the time between these lines as they are stamped."""

    last: float | None = None
    timer_s: float = 0.0
    rounding_s: float = 0.0
    """How much that may be off for the digits of the single times."""
    stamps_s: float = 0.0
    engine: EngineStamps = field(default_factory=EngineStamps)

    def see(self, step: dict[str, Value], lines: int, steps: float) -> tuple[float | None, float]:
        """Take the stamps out of a step that is complete, the last of so many lines, which stands for so many steps; the program's is
        given back with what it may be off."""
        if "engine_stamp_s" in step:
            self.engine.take(step)
            del step["engine_step"], step["engine_stamp_s"]
        stamp, rounding = step.pop("stamp_s", None), step.pop("stamp_rounding_s", 0.0)
        at = stamp if isinstance(stamp, float) else None
        self.add(at, step.get("step_time_s") if lines > 2 else None, steps)  # the second may hold the first
        return at, float(rounding)

    def add(self, stamp: float | None, step_time_s: object, steps: float) -> None:
        """The next line, which stands for so many steps. A clock that stands still was written by hand, or at once for all."""
        if stamp is not None and self.last is not None and isinstance(step_time_s, float) and stamp > self.last:
            self.timer_s += step_time_s * steps
            self.rounding_s += half_unit(repr(step_time_s)) * steps
            self.stamps_s += stamp - self.last
        self.last = stamp

    def merge(self, later: Stamps) -> None:
        """Go on with a later piece of the log; what lies between both is not counted."""
        self.timer_s, self.stamps_s = self.timer_s + later.timer_s, self.stamps_s + later.stamps_s
        self.rounding_s += later.rounding_s
        self.last = later.last
        self.engine.merge(later.engine)
