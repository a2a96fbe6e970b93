"""From what a log said of a run to its row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hpc_llm.causes.found import Found
from hpc_llm.causes.program import NONE
from hpc_llm.parsing.completing import tokens_per_step
from hpc_llm.parsing.gaps import interval
from hpc_llm.parsing.mixed import LOSSES, has_too_many_lines, in_words
from hpc_llm.parsing.registry import LineFormat, line_format
from hpc_llm.parsing.rows import COLUMNS, TRAIN, UNKNOWN_FORMAT, Row
from hpc_llm.parsing.rules import BEGINS, BELOW, BELOW_SINCE, EMPTY_COLUMNS, LEFT_EMPTY, STOPS, Value, leave_empty
from hpc_llm.parsing.run import PEAKS, RATES, LogRun
from hpc_llm.parsing.shown import OF_A_TRAINING, kind_of
from hpc_llm.records.metrics import finite
from hpc_llm.records.relations import broken
from hpc_llm.records.run import Outcome

_OF_THE_LOG = frozenset(
    "format kind gpu job_id started_at outcome outcome_reason invalid_reason cause cause_confidence".split()
)
"""Columns that do not tell one run of a log from another that prints into it."""

_TIMES = ("step_time_s_mean", "step_time_s_p50", "step_time_s_p90")
_RATES = tuple(name for name in RATES if name in COLUMNS)
_AND_ROUNDING = 1.01

LEAST_FOR_WARMUP = 3
"""With fewer step lines than this the first one is not left out of the means where the log begins in the middle of a run."""

_TELL = 3
"""Among so many step lines of a program stand those of its library, if it prints any."""
_SAMPLED, _NO_SAMPLE = 1.5, 0.1
"""Printed steps stand so far apart, and their mean is so far from that of all, where they tell nothing of the others."""
_ROUNDED_BYTES = 0.01 * (1 << 30)
"""What two digits of GB leave out."""
MESSAGES = "messages"
"""Format of a log without any metric whose messages say how the run ended."""


def row_of(run: LogRun) -> Row:
    """The run as a row; `run_id` and `source` are the caller's to fill in. It must be settled."""
    run.flush()
    _leave_out_another_below(run)
    run.settle_opening()
    is_cut = bool(run.orphans) and not run.lines
    if is_cut:  # the beginning of the log, with the step's number, is missing
        run.open_step(None, run.orphans)
        run.flush()
    if run.numbered and run.first is not None and run.last is not None:
        run.values["first_step"], run.values["last_step"] = int(run.first), int(run.last)
        run.values["steps_in_first_line"] = _steps_in_first_line(run) or 1
    seen = [line_format(name) for name in sorted(run.formats, key=lambda n: (run.formats[n], n))]
    values = {**run.companion, **run.inherited, **run.values, **_timed(run), **_larger_below(run)}
    for one in seen:
        values = {**one.defaults, **values} if one is seen[0] else values
        if one.finish is not None:
            one.finish(values)
    run.left_empty = str(values[LEFT_EMPTY]) if LEFT_EMPTY in values else None
    run.left_empty = "; ".join(filter(None, (run.left_empty, *run.doubt.told(values)))) or None
    columns: dict[str, Any] = {name: value for name, value in values.items() if name in COLUMNS}
    columns.update(dict.fromkeys(str(values.get(EMPTY_COLUMNS, "")).split()))
    if not run.began and run.numbered and (run.first or 0) > (_steps_in_first_line(run) or 1):
        columns.pop("started_at", None)  # the log begins in the middle, or the run goes on with an earlier one
    columns["format"] = seen[0].name if seen else MESSAGES if run.tail.speaks else UNKNOWN_FORMAT
    columns["loss_first"], columns["loss_last"] = map(finite, _losses(run, values))
    hole = run.gaps.hole(run.first) if run.numbered else None
    if hole is not None and run.distributions:
        run.left_empty = run.left_empty or f"means over all steps: {hole}"
    if not seen or seen[0].averages:
        single = bool(seen) and seen[0].single
        is_from_start = not is_cut and _is_from_start(run, single)
        _add_means(run, columns, single, is_from_start, is_excerpt=hole is not None)
        if single:
            _hold_to_own_mean(run, columns, values)
    elif run.lines and run.numbered and hole is None:
        _count_steps(run, columns, without_first=False)
    columns["kind"] = _kind(run, seen[0] if seen else None, columns)
    if run.work.changed:
        _of_unequal_steps(run, columns)
    _hold_to_clock(run, columns, values, single=bool(seen) and seen[0].single)
    _derive(columns, values, None if run.work.changed else tokens_per_step(values, run.packed))
    _hold_to_the_run(run, columns, values, averages=not seen or seen[0].averages)
    _hold_to_relations(run, columns, values)
    _judge(run, columns, values)
    if seen and seen[0].one_loss and has_too_many_lines(run):
        run.mixed = run.mixed or in_words(LOSSES)
    if run.mixed is not None:
        _empty(run, columns)
    return Row(**columns)


def _leave_out_another_below(run: LogRun) -> None:
    """Of a library that printed steps before the program's first one and none since nothing is known: another program worked with it."""
    if run.lines >= _TELL and float(run.companion.get(BELOW, 0)) > 1 and BELOW_SINCE not in run.companion:
        run.companion = {}
        leave_empty(run.values, "what a library below said: its steps all stand before the first of the program")


def _larger_below(run: LogRun) -> dict[str, Value]:
    """Peaks that a library saw and the program did not: it may have looked at what was allocated between steps alone."""
    pairs = ((name, run.companion.get(name), run.values.get(name)) for name in PEAKS)
    return {
        name: below
        for name, below, own in pairs
        if below is not None and own is not None and float(below) > float(own) + _ROUNDED_BYTES
    }


def _losses(run: LogRun, values: Mapping[str, Value]) -> tuple[float | None, float | None]:
    """Those of the first and the last step; where no step prints one, those of batches that cannot be told to be steps."""
    if run.losses.unread:
        return None, None
    if run.losses.first is not None or run.losses.last is not None:
        return run.losses.first, run.losses.last
    first, last = (values.get(name) for name in ("batch_loss_first", "batch_loss_last"))
    return (first if isinstance(first, float) else None), (last if isinstance(last, float) else None)


def _empty(run: LogRun, columns: dict[str, Any]) -> None:
    """Leave of a run whose lines are those of several what is true of their log."""
    for name in columns.keys() - _OF_THE_LOG:
        del columns[name]
    run.left_empty, run.sample = run.mixed, None
    if columns["outcome"] == Outcome.UNKNOWN.value:
        columns["outcome_reason"] = run.mixed


def ended_of(kind: str | None) -> str:
    """What of such a kind comes to its end, in words."""
    return "training" if kind in (TRAIN, None) else "the measurement"


def _what(columns: Mapping[str, Any]) -> str:
    return ended_of(columns.get("kind"))


def _kind(run: LogRun, owner: LineFormat | None, columns: dict[str, Any]) -> str | None:
    """A program that trains may also only have evaluated, or answered: its row has no batch of a training then."""
    if owner is None or owner.kind != TRAIN:
        return owner.kind if owner else None
    kind = kind_of(run.known, columns, run.has_steps or run.closed, run.shown)
    if kind != TRAIN:
        columns.update(dict.fromkeys(OF_A_TRAINING))
    return kind


def _timed(run: LogRun) -> dict[str, Value]:
    """What the lines say that print how long training has run."""
    found: dict[str, Value] = {
        "was_paused": run.was_paused,
        "has_beginning": run.began and BEGINS not in run.values,  # a bar that begins may be that of a run that goes on
        "time_went_back": run.clock.went_back,
        "clock_disagrees": run.clock.disagrees,
    }
    for name, order in (("first_order", run.first), ("second_order", run.second), ("last_order", run.last)):
        if order is not None:
            found[name] = float(order)
    if run.clock.step_time_s is not None:
        found |= {"timed_step_time_s": run.clock.step_time_s, "timed_steps": round(run.clock.steps)}
    found |= {f"reached {total}": f"{done} {time_s}" for total, done, time_s in run.bars.reached()}
    for total, stood in run.bars.pauses(to_the_end="elapsed_s" in run.values):
        found |= {f"stood {total}": f"{stood.count} {stood.time_s:g} {stood.step_s:g}"}
    if run.clock.tokens_per_second is not None:
        found["timed_tokens_per_second"] = run.clock.tokens_per_second
    return found


def _add_means(run: LogRun, columns: dict[str, Any], single: bool, is_from_start: bool, is_excerpt: bool) -> None:
    """Of an excerpt no means: a line counts for all steps since the line before, and nobody knows how many of them it tells of."""
    is_from_start = is_from_start or run.opening.is_left_out
    without_first = run.lines >= LEAST_FOR_WARMUP or run.first_is_after_pause or is_from_start
    counted = any(distribution.count for distribution in run.distributions.values())
    for distribution in run.distributions.values():
        if not run.first_is_after_pause and not (without_first and (counted or is_from_start)):
            distribution.take_first(_steps_in_first_line(run) or 1)
    if run.distributions and single:
        columns.setdefault("warmup_steps", 1 if without_first else None)
        columns.setdefault("measured_steps", max(one.count for one in run.distributions.values()) or None)
    elif run.distributions and not is_excerpt:
        _count_steps(run, columns, without_first)
    for name in RATES:
        if name in run.distributions and name in COLUMNS and not is_excerpt:
            columns.setdefault(name, run.distributions[name].mean())
    times = run.distributions.get("step_time_s")
    if times is not None and not is_excerpt:
        columns.setdefault("step_time_s_mean", times.mean())
        columns.setdefault("step_time_s_p50", times.percentile(50))
        columns.setdefault("step_time_s_p90", times.percentile(90))


def _hold_to_own_mean(run: LogRun, columns: dict[str, Any], values: Mapping[str, Value]) -> None:
    """Take the program's own mean of all steps where those that it prints, one of several each, are no sample of them: what is done
    when it prints, and not before, may make these shorter or longer."""
    mean, batch, rate = (
        columns.get("step_time_s_mean"),
        columns.get("global_batch_size"),
        values.get("mean_samples_per_second"),
    )
    if not (
        mean
        and batch
        and isinstance(rate, float)
        and 0 < rate < math.inf
        and run.first is not None
        and run.last is not None
    ):
        return
    own, every = batch / rate, (run.last - run.first) / max(1, run.lines - 1)
    if every < _SAMPLED or abs(own - mean) <= _NO_SAMPLE * own:
        return
    columns.update(dict.fromkeys((*_TIMES, "warmup_steps", "measured_steps")))
    columns["step_time_s_mean"] = own
    run.left_empty = run.left_empty or (
        f"times of single steps: the mean of those that are printed, {mean:.4g} s, is not that of all, {own:.4g} s"
    )


def _hold_to_clock(run: LogRun, columns: dict[str, Any], values: dict[str, Value], single: bool) -> None:
    """Leave out the rate of a library, and what follows from it, where no step was as short by the clock of its lines."""
    mean, batch, rate = (
        columns.get("step_time_s_mean"),
        columns.get("global_batch_size"),
        values.get("mean_samples_per_second"),
    )
    own = batch / rate if batch and isinstance(rate, float) and 0 < rate < math.inf else None
    told = mean if single and mean else own
    if told is None or not run.stamps.engine.contradicts(told):
        return
    values.pop("mean_samples_per_second", None)
    if mean and not single and abs(mean - told) > _NO_SAMPLE * told:
        return  # the program has a time of its own
    columns.update(dict.fromkeys((*_TIMES, "warmup_steps", "measured_steps")))
    run.left_empty = "; ".join(
        filter(
            None,
            (
                run.left_empty,
                f"step time: {told:.4g} s by the samples per second, at least {run.stamps.engine.least_s:.4g} s by the clock of the same lines",
            ),
        )
    )


def _is_from_start(run: LogRun, single: bool) -> bool:
    """Whether the first line is that of a process's first steps, which warm it up; with `single` it is of one step alone."""
    if single and run.numbered:
        return run.first is not None and run.first <= 1
    return run.began or not run.numbered or run.first is None or run.first <= (_steps_in_first_line(run) or 1)


def _of_unequal_steps(run: LogRun, columns: dict[str, Any]) -> None:
    """Rates of steps that hold unequal work: all tokens over all time, and none where the tokens are not known."""
    columns.update(dict.fromkeys((*run.work.changed, *_RATES)))
    if run.packed and run.lines >= LEAST_FOR_WARMUP:
        columns["tokens_per_second"] = run.work.tokens_per_second(run.known)
    run.left_empty = run.left_empty or f"{' and '.join(sorted(run.work.changed))}: not the same in all steps"


def _count_steps(run: LogRun, columns: dict[str, Any], without_first: bool) -> None:
    """Steps left out and steps measured: a line stands for all steps since the line before."""
    in_first_line = 1 if run.first == run.last == 1 else _steps_in_first_line(run)
    if in_first_line is None or run.first is None or run.last is None:
        return
    times = run.distributions.get("step_time_s")
    after = int(run.last - run.first) - int(run.not_measured) - int(times.left_out if times is not None else 0)
    if without_first:
        second = int(run.opening.second.weight) if run.opening.second is not None else 0
        columns.setdefault("warmup_steps", in_first_line + second)
        columns.setdefault("measured_steps", after - second or None)
    else:
        columns.setdefault("measured_steps", after + in_first_line)


def _steps_in_first_line(run: LogRun) -> int | None:
    """As many as in the next line, or those since the start."""
    apart = interval(run.first, run.second, run.known.get("ended_at_step"))
    if run.first is None or apart is None or not run.numbered:
        return None
    return max(1, min(int(run.first), int(apart)))


def _hold_to_the_run(run: LogRun, columns: dict[str, Any], values: Mapping[str, Value], averages: bool) -> None:
    """Leave the means empty where they would be of more steps than the run has, or of more time than it took; without `averages`
    the rates are the program's own."""
    total, measured = values.get("total_steps"), columns.get("measured_steps")
    mean, time = columns.get("step_time_s_mean"), columns.get("elapsed_s")
    said, empty = None, (*_TIMES, *_RATES) if averages else _TIMES
    if isinstance(total, int) and measured is not None and measured > total > 0:
        said = f"means: they would be of {measured} steps, and the run has {total}"
        empty = (*empty, "warmup_steps", "measured_steps")
    elif mean and measured and time and mean * measured > time * _AND_ROUNDING + 1:
        said = f"step time: {measured} steps of {mean:g} s are more than the {time:g} s that the run took"
    if said is not None:
        columns.update(dict.fromkeys(empty))
        run.left_empty = f"{run.left_empty}; {said}" if run.left_empty else said


def _hold_to_relations(run: LogRun, columns: dict[str, Any], values: Mapping[str, Value]) -> None:
    """Leave empty what contradicts other figures of the log."""
    figures: dict[str, Any] = {**values, **{name: value for name, value in columns.items() if value is not None}}
    if columns.get("kind") != TRAIN:
        figures.pop("step_time_s_mean", None)
    if (
        run.numbered
        and run.first is not None
        and run.first <= (_steps_in_first_line(run) or 1)
        and not run.work.changed
    ):
        figures |= {"steps_from_start": run.last, "step_batch": run.work.known.get("global_batch_size")}
    figures |= {
        "timer_s": run.stamps.timer_s,
        "timer_rounding_s": run.stamps.rounding_s,
        "stamps_s": run.stamps.stamps_s,
    }
    for said, names in broken(figures):
        columns.update(dict.fromkeys(columns.keys() & set(names)))
        run.left_empty = "; ".join(filter(None, (run.left_empty, f"figures that contradict each other: {said}")))


def _judge(run: LogRun, columns: dict[str, Any], values: Mapping[str, Value]) -> None:
    verdict = run.verdict()
    columns["outcome"], columns["outcome_reason"] = verdict.outcome.value, verdict.reason
    columns["cause"] = verdict.cause.id
    columns["cause_confidence"] = None if verdict.cause is NONE else verdict.confidence
    if verdict.is_open:
        columns["outcome_reason"] = (
            f"{str(verdict.reason).rstrip(': ')}: standard error alone does not say whether the job went on"
        )
    elif verdict.outcome is Outcome.UNKNOWN:
        columns["outcome_reason"] = _where_it_stops(run, values)
    elif verdict.root is not None and run.ended and (verdict.root.sign.ends_job or _is_behind_end(verdict.root, run)):
        columns["outcome_reason"] = f"{_what(columns)} had ended before: {verdict.reason}"
    elif verdict.outcome is Outcome.COMPLETED and (aftermath := run.tail.aftermath()):
        columns["outcome_reason"] = f"{_what(columns)} had ended before: {aftermath}"
    elif verdict.outcome is Outcome.COMPLETED:
        columns["outcome_reason"] = verdict.reason or _planned_stop(run)
    if columns["outcome"] == Outcome.INVALID.value:
        columns["invalid_reason"] = run.not_finite_reason or verdict.reason


def _is_behind_end(root: Found, run: LogRun) -> bool:
    """Whether what failed stands behind the line with which training came to its end."""
    end = run.tail.ended_at
    return root.is_root and end is not None and root.position > end


def _where_it_stops(run: LogRun, values: Mapping[str, Value]) -> str:
    if STOPS in values:
        return str(values[STOPS])
    if run.last is None and run.lines:
        return "the log stops after training steps that it does not number, without a message of an end"
    if run.last is None and values.get("bar_step"):
        total = values.get("total_steps")
        return f"the log stops at step {values['bar_step']} of {total} of its progress bar, without a message of an end"
    if run.last is None and run.shown.steps:
        return "the log has training steps in words that are not read, and no message of an end"
    if run.last is None:
        return "the log has no training step and no message of an end"
    if not run.counts_steps:
        return f"the log stops at epoch {run.last:g} without a message of an end"
    total = run.values.get("total_steps")
    of_all = f" of {total}" if total is not None else ""
    return f"the log stops at step {run.last:g}{of_all} without a message of an end"


def _planned_stop(run: LogRun) -> str | None:
    """That a run ended well and not at its last step, where its settings said so."""
    if run.tail.stopped is None or run.reached_last_step:
        return None
    total = run.values.get("total_steps")
    where = f", at step {run.last:g}" if run.last is not None and run.numbered else ""
    return (
        f"stopped by its own settings {run.tail.stopped}{where}{f' of {total}' if where and total is not None else ''}"
    )


def _derive(columns: dict[str, Any], values: Mapping[str, Value], tokens: int | None) -> None:
    """Columns that follow from printed ones by exact arithmetic; `tokens` are those of one step, if known."""
    ranks, batch, length = (columns.get(n) for n in ("world_size", "global_batch_size", "sequence_length"))
    total, per_gpu = columns.get("tokens_per_second"), columns.get("tokens_per_second_per_gpu")
    if total is None and per_gpu is not None and ranks:
        total = columns["tokens_per_second"] = per_gpu * ranks
    if total is None and tokens and columns.get("step_time_s_mean"):
        total = columns["tokens_per_second"] = tokens / columns["step_time_s_mean"]
    if per_gpu is None and total is not None and ranks:
        columns["tokens_per_second_per_gpu"] = total / ranks
    mean = columns.get("step_time_s_mean")
    samples = values.get("mean_samples_per_second")
    if mean is None and batch and samples:
        columns["step_time_s_mean"] = batch / float(samples)
    elif mean is None and total and batch and length:
        columns["step_time_s_mean"] = batch * length / total
