"""How slow this machine is now, for limits of time that only tell what grows out of bounds from what is slow."""

from __future__ import annotations

import re
import time

_REFERENCE_S = 0.007
"""What the work below takes on the machine for which the limits were written."""
_TEXT = b"abcd" * 50_000


def _work_s() -> float:
    begin = time.process_time()
    sum(number * number for number in range(200_000))
    re.search(rb"(?:ab|ac)x", _TEXT)
    return time.process_time() - begin


def slowness() -> float:
    """By what a limit is to be multiplied: how much longer this machine takes for a fixed work, and no less than 1."""
    return max(1.0, min(_work_s() for _ in range(5)) / _REFERENCE_S)


def is_within(taken_s: float, limit_s: float) -> bool:
    """Whether work that took `taken_s` kept to a limit; how slow the machine is, is measured only where that decides."""
    return taken_s < limit_s or taken_s < limit_s * slowness()
