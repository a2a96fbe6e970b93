"""Times of steps and runs for reading, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hpc_llm.api.layout import format_time
from hpc_llm.text.prose import broken
from hpc_llm.text.shown import one_line
from hpc_llm.text.tables import table

if TYPE_CHECKING:
    from hpc_llm.api.calibrating import Calibrated
    from hpc_llm.estimating.calibrate import Compared
    from hpc_llm.estimating.step_time import StepTime

WIDTH = 80
_TIED = "\u00a0"
"""A space at which no line is broken."""
_SHOWN = 0.05
"""Part of a step from which on a term is listed."""
_MORE = 1.02
"""So many times a step its parts are more than it where that can be seen in the figures."""
_WORDS = {
    "products": "products and attention",
    "traffic": "device memory",
    "unpacking": "unpacking weights",
    "launches": "Python asking for operations",
    "communication": "communication",
    "optimizer": "optimizer",
    "host_optimizer": "optimizer on the host",
    "transfers": "between host and device",
}


def time_lines(time: StepTime, *, can_run: bool = True) -> Iterator[str]:
    """What is known of a run's time; of one that cannot be no time limit is advised."""
    low, high = time.interval
    yield f"time: {seconds(time.step_time_s)} a step ({seconds(low)} to {seconds(high)}), {time.tokens_per_second:.0f} tokens/s"
    terms = sorted(time.terms.items(), key=lambda one: -one[1])
    shown = [
        f"{_WORDS[name]} {seconds(value)}".replace(" ", _TIED)
        for name, value in terms
        if value >= _SHOWN * time.step_time_s
    ]
    for line in textwrap.wrap(", ".join(shown), WIDTH, initial_indent="  ", subsequent_indent="  "):
        yield line.replace(_TIED, " ")
    if sum(time.terms.values()) > _MORE * time.step_time_s:
        yield "  Python asks while the GPU computes, so the parts are more than the step"
    shortest, longest = time.run_interval
    cost = f", {_hours(time.cost.amount)} {time.cost.unit}" if time.cost else ""
    what = "the run" if time.tries is None else f"the search of about {time.tries} trainings"
    run = f"{what} {clock(time.run_time_s)} ({clock(shortest)} to {clock(longest)}), {_hours(time.gpu_hours)} GPU-hours{cost}"
    yield from textwrap.wrap(run, WIDTH, initial_indent="  ", subsequent_indent="  ")
    first = f"  to the first step {seconds(time.time_to_first_step_s)}"
    if not can_run:
        yield first
    elif time.is_over_limit:
        yield f"{first}; the longest time limit there: {clock(time.proposed_time_s)}; a run"
        yield "  may need more: with --save-every it keeps what --resume goes on from"
    else:
        yield f"{first}; a time limit that leaves room: --time {clock(time.proposed_time_s)}"
    for note in time.notes:
        yield from wrapped(f"note: {note}, so that times are rough")


def wrapped(text: str) -> list[str]:
    """A sentence as lines of that width."""
    return broken(one_line(text), WIDTH, "  ")


def _hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def seconds(value: float) -> str:
    """With as many digits as tell something."""
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 10 else f"{value:.3g} s"


def clock(value: float) -> str:
    """As a scheduler writes it."""
    return format_time(max(1, round(value)))


def record(rows: Sequence[Compared]) -> Iterator[str]:
    """Predicted beside measured, a line a run."""
    has_fit = any(row.calibrated_s is not None for row in rows)
    headers = ["run", "method", "GPU", "measured", "predicted", *(["calibrated"] if has_fit else [])]
    cells = [
        [
            row.run, row.method, row.gpu, seconds(row.measured_s), _beside(row.predicted_s, row.measured_s),
            *([_beside(row.calibrated_s, row.measured_s)] if has_fit else []),
        ]
        for row in rows
    ]  # fmt: skip
    yield from table(cells, headers, WIDTH)


def _beside(found: float | None, measured: float) -> str:
    return "" if found is None else f"{seconds(found)} ({found / measured - 1:+.0%})"


def calibrated(one: Calibrated) -> Iterator[str]:
    """What the runs of a cluster gave."""
    made = one.calibration
    yield from record(one.runs)
    yield ""
    yield from wrapped(
        f"{made.cluster}: {len(made.runs)} runs on {', '.join(made.gpus)}; nine of ten are within {made.spread:.2f} times of what runs "
        f"beside them predict. Kept in {one.file}"
    )
