"""What neighbouring pieces of a log saw, joined: the last run of a piece may go on in the next one.

A piece does not know what stands before it. So it sets apart what can only be judged with that: its first measured value
(a warm-up, or one of many), how far its first step is from the one before, whether something else than training took place
at the seam, and lines about a step that it has not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpc_llm.parsing.held import OF_BARS, is_another_setup
from hpc_llm.parsing.rules import keep_larger, leave_empty
from hpc_llm.parsing.run import EARLY_PEAK, OF_THE_JOB, LogRun
from hpc_llm.parsing.work import state_of

MOST_RUNS = 2000
"""So many of a log are kept."""


def goes_on_in(run: LogRun, later: LogRun) -> bool:
    """Whether `later`, the first run of the next piece of the log, is this run still."""
    if run.mixed is not None and later.mixed is not None:
        return True
    if later.began or (later.has_steps and (run.over or is_another_setup(run.known, later.values))):
        return False
    if run.last is None or later.first is None or later.first > run.last:
        return True
    # An epoch may come twice, for it is printed rounded; a step, as another rank's copy.
    return later.first in run.recent if run.numbered else later.first == run.last


def merge(run: LogRun, later: LogRun) -> None:
    """Join what the next piece of the log saw of this run."""
    numbered = run.numbered and run.last is not None and later.first is not None
    gap = max(1.0, later.first - run.last) if numbered and later.first and run.last else 1.0
    if later.orphans:
        run.add_to_step(later.orphans)
    paused = run.paused
    run.doubt.merge(later.doubt, (run.values, run.companion), (later.values, later.companion), run.has_steps)
    if run.has_steps:  # for a piece that begins among steps, what stands before its first one is no early one
        for known in (later.values, later.companion):
            if EARLY_PEAK in known:
                keep_larger(known, "engine_peak_bytes", known.pop(EARLY_PEAK))
    if later.lines:
        run.flush()  # its last step is complete: what a later line adds to it stands before the next step
        if later.first is not None and run.last is not None:
            run.gaps.add(run.last, later.first)
        run.gaps.merge(later.gaps)
        _merge_pauses(run, later, gap)
        _merge_order(run, later)
        if run.sample is not None and later.sample is not None:
            run.sample.merge(later.sample)
    run.paused = later.paused or (run.paused and not later.lines)
    run.was_paused = run.was_paused or later.was_paused
    run.clock.merge(later.clock, paused)
    run.stamps.merge(later.stamps)
    run.bars.merge(later.bars)
    run.shown.merge(later.shown)
    if later.closed and not run.closed:
        run.flush()
    run.closed = run.closed or later.closed
    run.job_over = run.job_over or later.job_over
    run.heads.merge(later.heads)
    if later.aftermath is not None:
        run.tail.look_behind_end(later.tail)
    run.tail.merge(later.tail, later.lines)
    run.formats = {**later.formats, **run.formats}
    run.packed = run.packed or later.packed
    run.first_goes_on = run.first_goes_on or later.first_goes_on
    run.mixed = run.mixed or later.mixed
    run.learn(later.values)  # in order, so the last word counts, and of a peak the largest
    run.learn(later.companion, companion=True)
    run.pending = later.pending or run.pending


def is_stray(runs: list[LogRun], number: float | None) -> bool:
    """Whether the last run is but one line like a setting, behind which the run before goes on with its next step; it is then left out."""
    run = runs[-1]
    if len(runs) < 2 or len(run.values) != 1 or run.has_steps or run.trains or run.aftermath is not None:
        return False
    if run.tail.is_cell:
        return False
    if not runs[-2].goes_on(number):
        return False
    [(name, value)] = run.values.items()
    if name in runs[-2].values and value != runs[-2].values[name]:
        leave_empty(
            runs[-2].values, f"{name} {value}: it is printed among the steps of a run with {runs[-2].values[name]}"
        )
    run.values.clear()
    return True


def rejoin(runs: list[LogRun]) -> None:
    """The last run is the one before: what follows the end of a job is that job's."""
    later = runs.pop()
    merge(runs[-1], later)


def _merge_pauses(run: LogRun, later: LogRun, gap: float) -> None:
    """The first step line of a piece may be the one that follows a pause in the piece before."""
    after_pause = run.paused or later.first_is_after_pause
    if not run.lines:
        run.first_is_after_pause, after_pause = after_pause, False
        run.opening = later.opening
    is_second = run.lines == 1 and not after_pause and later.first_goes_on
    if is_second and later.opening.first is not None:
        run.opening.second = replace(later.opening.first, weight=gap)
    before = state_of(run.distributions.get("step_time_s"))
    for name, distribution in later.distributions.items():
        run.distribution(name).merge(distribution, gap, without_first=after_pause or is_second)
    steps, seconds = state_of(run.distributions.get("step_time_s"))
    counted = state_of(later.distributions.get("step_time_s"))
    run.work.merge(later.work, steps - before[0] - counted[0], seconds - before[1] - counted[1])
    if run.opening is not later.opening and later.opening.second is not None:
        run.count(later.opening.second, later.opening.second.measured)
    run.not_measured += later.not_measured + (gap if after_pause and later.distributions else 0.0)


def _merge_order(run: LogRun, later: LogRun) -> None:
    if run.first is None:
        run.first, run.second = later.first, later.second
    elif run.second is None:
        run.second = later.first
    run.last = later.last if later.last is not None else run.last
    run.lines += later.lines
    run.numbered = run.numbered or later.numbered
    run.counts_steps = later.counts_steps if later.lines else run.counts_steps
    run.recent = later.recent or run.recent
    run.losses.merge(later.losses)
    if run.stream is None:
        run.stream = later.stream


def join(pieces: Iterable[list[LogRun]]) -> list[LogRun]:
    """The runs of a log from those of its pieces, in order."""
    runs: list[LogRun] = []
    for piece in pieces:
        if runs and piece and goes_on_in(runs[-1], piece[0]):
            merge(runs[-1], piece[0])
            piece = piece[1:]
        for run in piece:
            if runs:
                runs[-1].tail.settle()
                known = {**runs[-1].inherited, **runs[-1].values}
                run.inherited = {n: known[n] for n in OF_THE_JOB if n in known} | run.inherited
            runs.append(run)
    return without_empty(runs)


def leave_out(runs: list[LogRun]) -> None:
    """Keep the first of very many runs and the last one, of which more may come: what has so many is no log of training, and
    would take memory without end."""
    is_open = runs and runs[-1].aftermath is not None and not runs[-1].has_steps  # it may be a run, or none
    last = -2 if is_open else -1
    while len(runs) > MOST_RUNS - last:
        left = runs.pop(last - 1)
        runs[last].left_out_before += 1 + left.left_out_before


def without_empty(runs: list[LogRun]) -> list[LogRun]:
    """The runs of which anything is known, and the last one, which may go on."""
    return [*(run for run in runs[:-1] if not (run.empty or _only_prepares(run))), *runs[-1:]]


def _only_prepares(run: LogRun) -> bool:
    """Whether nothing was seen of it but bars that came to their end: what goes over the data before training draws such ones, and
    training ends with a summary."""
    bars = [str(value).split()[0] == name[4:] for name, value in run.values.items() if name.startswith("bar ")]
    begun = any(name.startswith(OF_BARS[1:]) for name in run.values)
    is_silent = not (run.lines or run.tail.speaks)
    return begun and is_silent and bool(bars) and all((*bars, *(name.startswith(OF_BARS) for name in run.values)))
