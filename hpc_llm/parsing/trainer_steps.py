"""How many steps lie in the time that the Hugging Face Trainer prints.

That time is of one call of `train`: a run that goes on from a checkpoint has done fewer steps in it than its numbers say, and
one that is stopped early fewer than were planned. Older releases divide the planned steps by that time all the same, newer ones
those that were done. So the printed rate, the bar, the numbers and the last epoch are held against each other: where
they contradict each other, or leave it open, the number is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from hpc_llm.parsing.gaps import interval
from hpc_llm.parsing.rules import Value, leave_empty

_EXACT_ENOUGH = 0.1
"""Steps per second are printed with three digits: a slower rate is too coarse to count with."""
_ROUNDING = 0.006
"""Of a rate that is exact enough, and of a time."""
_OF_A_RATE = 0.0005
"""Rates are printed with three digits behind the point."""
_EPOCH_ROUNDING = 0.006
"""Older releases print epochs with two digits."""
_OF_ONE_CALL = 0.01
"""By so small a part the times differ that the nodes of one training print."""

_MOST_OF_IT = 0.9
"""Of the printed time: a bar that was last drawn before that may not be where training ended."""

_MARK = re.compile(
    rb"'(?:epoch|(?:global_)?step(?:/max_steps)?|iter(?:ation)?|learning_rate|lr|grad_norm|num_input_tokens_seen|throughput)': "
)


class Bar(NamedTuple):
    """The last state of a progress bar."""

    time_s: float
    done: int
    total: int


class Steps(NamedTuple):
    """What is known of the steps of this call of `train`."""

    done: float | None
    """How many; no whole number where a rounded rate alone says it, None where the log does not say."""
    before: int | None
    """How many an earlier call did; None where the log does not say."""
    resumed: bool
    """The log says, or shows, that it goes on with an earlier run."""
    early: bool
    """It ended before the planned number of steps."""

    def by_bar(self, bar: Bar) -> int | None:
        """How many steps the time of the bar holds."""
        return bar.done - self.before if self.before is not None and bar.done > self.before else None


def of_the_run(values: Mapping[str, Value], bar: Bar | None) -> Steps:
    """The steps, from what the log of a run says of them."""
    before, total = _before(values, bar), _figure(values, "total_steps")
    done = _done(values, bar, before, None if total is None else int(total))
    early = _is_early(values) or (done is not None and total is not None and done < total - (before or 0))
    return Steps(done, before, bool(before) or goes_on(values), early)


def _figure(values: Mapping[str, Value], name: str) -> float | None:
    value = values.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def goes_on(values: Mapping[str, Value]) -> bool:
    """Whether a run goes on with an earlier one: its first line is further from the start than the second from the first, or
    its time began anew.
    """
    if values.get("time_went_back"):
        return True
    first, apart = _figure(values, "first_order"), _interval(values)
    return first is not None and apart is not None and first > 1.5 * apart + 2 * _EPOCH_ROUNDING


def _interval(values: Mapping[str, Value]) -> float | None:
    """Between two lines, as far as the first two show it."""
    first, second = _figure(values, "first_order"), _figure(values, "second_order")
    return interval(first, second, values.get("ended_at_step") if "last_step" in values else None)


def _before(values: Mapping[str, Value], bar: Bar | None) -> int | None:
    """Steps of an earlier call; None where the log does not say."""
    resumed, begun = _figure(values, "resumed_at"), _figure(values, f"begun {bar.total}") if bar else None
    if resumed is not None or begun is not None:
        return int(resumed if resumed is not None else begun or 0)
    if goes_on(values):
        return None
    return 0 if values.get("has_beginning") or "num_examples" in values or _interval(values) else None


def of_a_summary(summary: Mapping[str, object], total: object) -> float | None:
    """The steps that a summary alone shows: only where the Trainer did not count those that were planned."""
    figures = {name: summary.get(f"train_{name}") for name in ("steps_per_second", "runtime")}
    rate, time = (float(v) if isinstance(v, (int, float)) else 0.0 for v in figures.values())
    counted = rate * time if rate >= _EXACT_ENOUGH else 0.0
    if not isinstance(total, int) or not math.isfinite(counted) or counted < 0.5 or _is_near(counted, total):
        return None
    return _decided(counted, time)


def _decided(counted: float, time_s: float) -> float:
    """The whole number of steps that a rate says, if its rounding leaves but one; else what the rate makes.

    >>> _decided(59.99, 480.0), _decided(2814.01, 16553.0)
    (60, 2814.01)
    """
    error = _OF_A_RATE * time_s
    least = math.ceil(counted - error)
    return least if least == math.floor(counted + error) else counted


def _counted(values: Mapping[str, Value]) -> float | None:
    """The steps by which the Trainer divided its time."""
    rate, time = _figure(values, "steps_per_second"), _figure(values, "elapsed_s")
    return rate * time if rate is not None and time and rate >= _EXACT_ENOUGH else None


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= max(0.6, _ROUNDING * other)


def _done(values: Mapping[str, Value], bar: Bar | None, before: int | None, total: int | None) -> float | None:
    counted, ended = _counted(values), _figure(values, "ended_at_step")
    if ended is not None and before is not None:
        done = int(ended) - before
        fits = counted is None or _is_near(counted, done) or (total is not None and _is_near(counted, total))
        return done if fits and done > 0 else None
    if bar is not None:
        return _by_bar(bar, before, counted, _figure(values, "elapsed_s"))
    if total is None:
        return _without_total(values, before, counted)
    if before is None:
        return _if_it_fits(values, counted, None) if counted and not _is_near(counted, total) else None
    left = total - before
    if _is_early(values) or (counted is not None and not _is_near(counted, left)):
        is_planned = counted is None or _is_near(counted, total)  # of an older release
        return None if is_planned else _if_it_fits(values, counted, before)
    return left if left > 0 and (_end(values) is not None or counted is not None) else None


def _by_bar(bar: Bar, before: int | None, counted: float | None, time_s: float | None) -> float | None:
    """What the bar says, unless the Trainer counted something else; planned steps say nothing of a bar that was left behind."""
    if before is None:
        is_session = counted is not None and counted < bar.done and not _is_near(counted, bar.total)
        return _decided(counted, time_s or 0.0) if is_session and counted is not None else None
    done = bar.done - before
    is_drawn_last = bar.done == bar.total or time_s is None or bar.time_s >= _MOST_OF_IT * time_s
    fits = is_drawn_last if counted is None or _is_near(counted, bar.total) else _is_near(counted, done)
    return done if done > 0 and fits else None


def _without_total(values: Mapping[str, Value], before: int | None, counted: float | None) -> float | None:
    """Where the log does not say how many steps were planned, only whole epochs or numbered lines show that all were done."""
    if counted is None or before != 0:
        return None
    time = _figure(values, "elapsed_s") or 0.0
    last, second, first = (_figure(values, f"{name}_order") for name in ("last", "second", "first"))
    if "last_step" in values:
        gap = (second or 0.0) - (first or 0.0)
        return _decided(counted, time) if last is not None and last - 0.6 <= counted < last + gap + 0.6 else None
    epoch = _figure(values, "order")
    return (
        _decided(counted, time)
        if epoch and not values.get("was_paused") and abs(epoch - round(epoch)) < 0.001
        else None
    )


def _end(values: Mapping[str, Value]) -> tuple[float, float] | None:
    """Between which numbers the last step lies, by the last line and the last epoch; None where nothing says."""
    epoch, length, last = _figure(values, "order"), _steps_per_epoch(values), _figure(values, "last_order")
    if epoch is not None and length is not None:
        return epoch * (length - 1) - 1 - _EPOCH_ROUNDING * length, epoch * (length + 1) + 1 + _EPOCH_ROUNDING * length
    second, first = _figure(values, "second_order"), _figure(values, "first_order")
    if "last_step" in values and last is not None:
        return last, last + (second - first if second is not None and first is not None else math.inf)
    return None


def _steps_per_epoch(values: Mapping[str, Value]) -> float | None:
    printed = _figure(values, "steps_per_epoch")
    examples, batch = _figure(values, "num_examples"), _figure(values, "global_batch_size")
    if printed is not None:
        return printed
    return math.ceil(examples / batch) if examples and batch else None


def _is_early(values: Mapping[str, Value]) -> bool:
    """Whether the last epoch, or the last line, shows that the planned number of steps was not reached."""
    end, total = _end(values), _figure(values, "total_steps")
    return end is not None and total is not None and end[1] < total


def _if_it_fits(values: Mapping[str, Value], counted: float | None, before: int | None) -> float | None:
    """The steps that the Trainer counted, where the end of training does not contradict them."""
    if counted is None or counted < 0.5:
        return None
    end = _end(values)
    if end is not None and before is not None and not end[0] - 0.6 <= counted + before <= end[1] + 0.6:
        return None
    return _decided(counted, _figure(values, "elapsed_s") or 0.0)


_HARMLESS = 1.05
"""So many times as long a mean may be with pauses as without them."""


def mind_pauses(values: dict[str, Value], bar: Bar) -> None:
    """Take no time that holds those in which training's own bar stood still, though no line says what took place."""
    stood = values.get(f"stood {bar.total}")
    if not isinstance(stood, str) or not bar.done:
        return
    count, time_s, step_s = stood.split()
    timed = values.get("timed_step_time_s")
    if isinstance(timed, float) and timed > _HARMLESS * float(step_s):
        del values["timed_step_time_s"]
    if float(time_s) > (_HARMLESS - 1) * bar.done * float(step_s) and not values.get("was_paused"):
        values["was_paused"] = True
        often = "once" if count == "1" else f"{count} times"
        leave_empty(values, f"tokens/s: the progress bar went on for {float(time_s):.0f} s without a step, {often}")


def is_of_another_call(time: Value | None, before: Value | None) -> bool:
    """Whether these are the times, in seconds, of two trainings. Where steps stand before the first, it is that of the steps."""
    both = isinstance(time, float) and isinstance(before, float)
    return both and abs(float(time or 0) - float(before or 0)) > _OF_ONE_CALL * float(before or 0) + 0.01


def is_of_a_step(line: bytes) -> bool:
    """Whether a dictionary with a loss tells of a step; without any mark of one it may as well be an evaluation's.

    >>> is_of_a_step(b"{'loss': 2.5, 'epoch': 1.0}"), is_of_a_step(b"{'loss': 2.5, 'f1': 0.75}")
    (True, False)
    """
    return _MARK.search(line) is not None
