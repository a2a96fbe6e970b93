"""One training that a log tells twice: by the table of a notebook or the Trainer's lines, and by its history, printed behind them.

It is the same training only where the log proves it: both tellings end with the same time of training, to all its digits, and nothing else
contradicts that; or one is the Trainer's history, the other is none, both go as far, and the losses of the coarser stand in the finer
at the same steps. Else they are two: a training that is repeated with its seeds has the same losses, and another time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpc_llm.parsing.jobs import is_another
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.run import PEAKS, RESULTS, LogRun
from hpc_llm.parsing.told import Lines
from hpc_llm.records.relations import half_unit

LOOKED_AT = 64
"""Trainings before a telling that may be told by it."""
_ENOUGH = 2
"""So many different losses prove it where one of the two tells no time."""
_DIGITS = 3
"""Decimals of a time that no two trainings share by chance."""
_OF_A_LOSS = 5e-4
"""By so small a part one may differ from the same one that is printed with four digits."""
_OF_A_STEP, _OF_AN_EPOCH = 0.01, 0.0051
"""By so much a place may differ from the same one: epochs are printed with two digits."""
_RESUMED = 1.5
_OF_THE_TRAINING = ("elapsed_s", "steps_per_second", "trainer_rate", "tokens_seen", "total_steps")


def rejoined(runs: Sequence[LogRun]) -> list[LogRun]:
    """The runs, each training once."""
    joined: list[LogRun] = []
    for run in runs:
        before = told_before(run, joined)
        if before is None:
            joined.append(run)
        else:
            _take(before, run)
            _follow(joined[-1], run)
    return joined


def told_before(run: LogRun, earlier: Sequence[LogRun]) -> LogRun | None:
    """The one of the `earlier` runs of which this is another telling; None where it may be of none, or of several."""
    if run.left_out_before or run.aftermath is not None or not run.formats:
        return None
    near = earlier[-LOOKED_AT:]
    same = [one for one in near if _is_same(one, run)]
    if len(same) != 1:
        return None
    is_by_time = _has_same_time(same[0], run)
    is_repeated = not is_by_time and any(_matches(one, run) for one in near if one is not same[0] and one.mixed is None)
    return None if is_repeated else same[0]


def is_finer(run: LogRun, other: LogRun) -> bool:
    """Whether it tells more losses."""
    return run.losses.told.count > other.losses.told.count


def _is_same(one: LogRun, later: LogRun) -> bool:
    if one.mixed is not None or later.mixed is not None or not one.formats or not (one.has_steps or one.closed):
        return False
    time = _has_same_time(one, later)
    told = (one.losses.told.is_history, later.losses.told.is_history)
    if time is False or (time is None and told != (False, True)) or _contradict(one.values, later.values):
        return False
    matches = _matches(one, later) if later.has_steps else 0
    if matches is None:
        return False
    if time:
        return bool(matches) or _agree(one.values, later.values)
    return matches + _has_same_evaluation(one.values, later.values) >= _ENOUGH and _go_as_far(one, later)


def _has_same_time(one: LogRun, later: LogRun) -> bool | None:
    """Whether both tell the time of one training; None where one tells none, or with fewer digits."""
    time, other = one.values.get("elapsed_s"), later.values.get("elapsed_s")
    if not isinstance(time, float) or not isinstance(other, float):
        return None
    unit = 2 * max(half_unit(repr(time)), half_unit(repr(other)))
    if time == other and unit < 2 * 10.0**-_DIGITS:
        return True
    is_rounded = other in (time, float(f"{time:.4g}")) or time == float(f"{other:.4g}")
    return None if is_rounded or abs(time - other) <= unit else False


def _contradict(one: Mapping[str, Value], later: Mapping[str, Value]) -> bool:
    totals = [values.get("total_steps") for values in (one, later)]
    numbers = [values.get("job_id") for values in (one, later)]
    return (None not in totals and totals[0] != totals[1]) or is_another(*numbers)


def _agree(one: Mapping[str, Value], later: Mapping[str, Value]) -> bool:
    """Whether two summaries say the same, beside the time."""
    pairs = [(one.get(name), later.get(name)) for name in ("steps_per_second", "total_steps", "eval_loss")]
    known = [pair for pair in pairs if None not in pair]
    return bool(known) and all(_is_equal(*pair) for pair in known)


def _has_same_evaluation(one: Mapping[str, Value], later: Mapping[str, Value]) -> bool:
    return "eval_loss" in one and _is_equal(one["eval_loss"], later.get("eval_loss"))


def _is_equal(one: object, other: object) -> bool:
    """Whether they are one figure, one of them perhaps with fewer digits."""
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return False
    return _is_within(one, other, max(half_unit(repr(float(one))), half_unit(repr(float(other)))))


def _is_within(one: float, other: float, rounding: float) -> bool:
    """Whether they are as near as the rounding lets them be, or both no number."""
    if one == other or not (math.isfinite(one) and math.isfinite(other)):
        return one == other or (one != one and other != other)
    return abs(one - other) <= min(1.01 * rounding, _OF_A_LOSS * max(abs(one), abs(other)))


def _lines(one: LogRun, later: LogRun) -> tuple[Lines, Lines, float] | None:
    """The lines of both in one unit, and by how much a place may differ; None where they tell no places of one kind."""
    of_steps = one.numbered and later.numbered
    if not of_steps and any(run.numbered and not run.losses.told.is_history for run in (one, later)):
        return None
    first, second = (Lines(run.losses.told.by(of_steps), run.losses.told.losses) for run in (one, later))
    if not (first.losses and second.losses and first.rise and second.rise):
        return None
    return first, second, _OF_A_STEP if of_steps else _OF_AN_EPOCH


def _matches(one: LogRun, later: LogRun) -> int | None:
    """How many different losses of the coarser telling the finer one has at their places; None where it has another one there."""
    lines = _lines(one, later)
    if lines is None:
        return 0
    first, second, within = lines
    coarse, fine = (first, second) if is_finer(later, one) else (second, first)
    is_whole = (one if is_finer(one, later) else later).losses.told.is_whole
    found: set[float] = set()
    for place, loss in zip(coarse.places, coarse.losses, strict=True):
        if place > fine.places[-1] + within and not is_whole:
            break
        near = [other for other in fine.at(place, within) if _is_within(loss, other, math.inf)]
        if not any(_is_within(loss, other, max(coarse.rounding(loss), fine.rounding(loss))) for other in near):
            return None
        found.add(loss)
    return len(found)


def _go_as_far(one: LogRun, later: LogRun) -> bool:
    """Whether both end at one place: a training that was broken off is not the one that was begun anew."""
    lines = _lines(one, later)
    if lines is None:
        return False
    places, within = lines[0].places, lines[2]
    first, second = (run.losses.told.end(one.numbered and later.numbered) for run in (one, later))
    apart = places[1] - places[0] if len(places) > 1 else places[0]
    return first - within <= second <= max(first, (one.last or 0.0) + apart - 2 * within) + within


def _take(run: LogRun, again: LogRun) -> None:
    """Take of another telling what this one lacks, and its losses where it is finer."""
    lacking = {n: again.values[n] for n in _OF_THE_TRAINING if n in again.values and n not in run.values}
    run.learn({**lacking, **{n: v for n, v in again.values.items() if n in RESULTS or n in PEAKS}})
    run.learn({n: v for n, v in again.companion.items() if n in PEAKS}, companion=True)
    ended = again.values.get("step")
    if again.closed and again.losses.told.is_history and isinstance(ended, int):
        run.values.setdefault("ended_at_step", ended)
    run.closed, run.was_paused = run.closed or again.closed, run.was_paused or again.was_paused
    if is_finer(again, run):
        first = run.losses.first if _is_resumed(run) else again.losses.first
        told, last = again.losses.told, again.losses.last
        run.losses = replace(
            run.losses, first=first, last=last, told=told, ends_not_finite=again.losses.ends_not_finite
        )
        run.sample = again.sample


def _is_resumed(run: LogRun) -> bool:
    """Whether it goes on with an earlier run, of which the history tells, too."""
    begun = any(name.startswith("begun ") and value for name, value in run.values.items())
    if begun or run.values.get("resumed_at") or run.clock.went_back:
        return True
    return run.first is not None and run.second is not None and run.first > _RESUMED * (run.second - run.first) + 0.01


def _follow(run: LogRun, again: LogRun) -> None:
    """The text of another telling follows that of a run; its lines are no steps behind what was found so far."""
    tail, later = run.tail, again.tail
    ended = tail.ended_at, tail.firm_at, tail.stopped
    later.parts = deque(replace(part, steps=()) for part in later.parts)
    tail.merge(later, 0)
    if ended[0] is not None:
        tail.ended_at, tail.firm_at, tail.stopped = ended
    run.heads.merge(again.heads)
    run.job_over = run.job_over or again.job_over
