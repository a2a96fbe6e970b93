"""Following runs to their end without wearing out a login node."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from hpc_llm.records.run import RunPaths
from hpc_llm.runs.statuses import RunStatus, status

_FIRST_S = 2.0
_LONGEST_S = 30.0
_LOOK_S = 0.5


def wait(
    runs: Sequence[RunPaths],
    on_update: Callable[[list[RunStatus]], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    timeout: float | None = None,
) -> list[RunStatus]:
    """Return the statuses of `runs` once all are over or `timeout` seconds have passed, telling `on_update` about every look.

    The scheduler is asked at growing intervals up to half a minute; in between only the exit records are looked for, so
    that the end of a run is noticed at once all the same.
    """
    interval = _FIRST_S
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        statuses = status(runs)
        if on_update is not None:
            on_update(statuses)
        going = [run for run, state in zip(runs, statuses, strict=True) if not state.is_over]
        left = until - time.monotonic()
        if not going or left <= 0:
            return statuses
        if not _wait_for_an_exit(going, min(interval, left), sleep):
            interval = min(interval * 1.5, _LONGEST_S)


def _wait_for_an_exit(runs: Sequence[RunPaths], seconds: float, sleep: Callable[[float], None]) -> bool:
    """Wait until one more of `runs` has written its end, or `seconds` have passed; returns whether one has."""
    ended = sum(run.exit.exists() for run in runs)
    for _ in range(max(1, round(seconds / _LOOK_S))):
        sleep(_LOOK_S)
        if sum(run.exit.exists() for run in runs) > ended:
            return True
    return False
