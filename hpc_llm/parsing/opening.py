"""The first two step lines of a run: whether the second holds the time of the first, which is a warm-up, once more.

Megatron-LM prints a line for the first iteration of a process and does not set its timer back there. So the next line is the mean over
all iterations since the start. Older releases and forks set it back. Where neither the clock of the lines nor their times show which
it was, the second line is left out as warm-up, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpc_llm.parsing.rules import Value

_ROUNDED = 0.001
_HARMLESS = 0.02
"""By so small a part the first step may change the mean of the others."""
_NEAR = 0.02
"""Of a time: so much passes between the lines besides the steps."""


@dataclass(frozen=True)
class Line:
    """What a step line measured."""

    order: float | None
    weight: float
    """Steps since the line before."""
    step: Mapping[str, Value]
    measured: frozenset[str]
    """The columns of it whose means are taken."""
    stamp_s: float | None = None
    """The time at which it was printed, where it says so."""
    stamp_rounding_s: float = 0.0

    @property
    def time_s(self) -> float | None:
        time = self.step.get("step_time_s")
        return float(time) if isinstance(time, (int, float)) and time > 0 else None


@dataclass
class Opening:
    """The lines, as far as they were read."""

    first: Line | None = None
    second: Line | None = None
    """Set apart: it is in no mean yet."""

    @property
    def is_left_out(self) -> bool:
        """Whether there is a second line that may hold the first one's time."""
        return self.second is not None and (self.first is None or may_hold(self.first, self.second))


def may_hold(first: Line, second: Line) -> bool:
    """Whether the mean that the second line prints may be one over the first line's step, too, and another for it."""
    if first.order is None or second.order is None or first.time_s is None or second.time_s is None:
        return True
    steps = second.order - first.order
    if steps > 1 and first.order % steps == 0:
        return False  # the first line is one of those that come every so many steps
    if abs(second.time_s - first.time_s) <= _HARMLESS * second.time_s * steps:
        return False  # with the first step or without it, the mean is the same
    if second.time_s * (steps + 1) < first.time_s * (1 - _ROUNDED):
        return False  # all of it is less than the first step alone
    return not _shows_reset(first, second, steps)


def _shows_reset(first: Line, second: Line, steps: float) -> bool:
    """Whether the time between the lines is that of the steps between them, and would not be if the first were among them."""
    if first.stamp_s is None or second.stamp_s is None or first.time_s is None or second.time_s is None:
        return False
    wanted = second.time_s * steps
    error = _NEAR * wanted + max(first.stamp_rounding_s, second.stamp_rounding_s)
    is_near = abs(second.stamp_s - first.stamp_s - wanted) <= error
    return is_near and abs(first.time_s - second.time_s) > 2 * error
