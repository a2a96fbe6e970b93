"""A job that Slurm takes down and queues again appends to the same output. What its earlier tries said is past."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime

from hpc_llm.causes.found import Found

_TAKEN_DOWN_AT = re.compile(r"\*\*\* (?:JOB|STEP) .{0,200}CANCELLED AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")
_JOB_TAKEN_DOWN = re.compile(r"\*\*\* JOB \S+ .{0,200}CANCELLED ")


def since(started_at: float, found: Sequence[Found]) -> list[Found]:
    """What was found in one log, without all up to the last line by which Slurm ended a try before `started_at` (Unix time)."""
    ended = max((one.position for one in found if _taken_down_at(one) < started_at), default=-1)
    return [one for one in found if one.position > ended]


def taken_down(found: Sequence[Found]) -> int:
    """How many times Slurm says that it took the job down."""
    return sum(_JOB_TAKEN_DOWN.search(one.text) is not None for one in found)


def _taken_down_at(one: Found) -> float:
    """Slurm writes the local time of the node."""
    said = _TAKEN_DOWN_AT.search(one.text)
    try:
        return datetime.fromisoformat(said[1]).timestamp() if said else math.inf
    except ValueError:
        return math.inf
