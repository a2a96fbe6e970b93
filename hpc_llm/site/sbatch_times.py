"""Moments as sbatch reads them in --begin and --deadline, and whether a job can end between the two."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta

from hpc_llm.errors import RequestError
from hpc_llm.site.slurm_time import format_time
from hpc_llm.text.late_pattern import late_pattern

_WORDS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
"""Hours of the day."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_FROM_NOW = late_pattern(r"now(?:\s?([+-])\s?([0-9]{1,9})\s?([smhdw]?)[a-z]*)?", re.IGNORECASE)
_CLOCK = late_pattern(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\ ?([ap])m)?", re.IGNORECASE)
_DAY_AND_CLOCK = late_pattern(r"(today|tomorrow|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2})(?:[Tt\- ](.+))?", re.IGNORECASE)


def moment_of(text: str, now: datetime) -> datetime | None:
    """When sbatch takes a value to mean, at `now`; None of forms that are written with months or days first, and of what is none.

    >>> noon = datetime(2027, 1, 20, 12, 0)
    >>> moment_of("now+2hours", noon), moment_of("11:30", noon), moment_of("2027-01-20T12:34", noon)
    (datetime.datetime(2027, 1, 20, 14, 0), datetime.datetime(2027, 1, 21, 11, 30), datetime.datetime(2027, 1, 20, 12, 34))
    """
    if found := _FROM_NOW.fullmatch(text):
        sign, number, unit = found.groups()
        shift = int(number or 0) * _UNITS[(unit or "s").lower()]
        return datetime.fromtimestamp(now.timestamp() + (-shift if sign == "-" else shift))
    if (clock := _clock(text)) is not None:
        on_time = datetime.combine(now.date(), clock)
        is_past = (clock.hour, clock.minute) <= (now.hour, now.minute)  # seconds decide nothing there
        return on_time + timedelta(days=1) if is_past else on_time
    if not (found := _DAY_AND_CLOCK.fullmatch(text)):
        return None
    day, clock = _day(found[1].lower(), now.date()), _clock(found[2]) if found[2] else time()
    return None if day is None or clock is None else datetime.combine(day, clock)


def _clock(text: str) -> time | None:
    if text.lower() in _WORDS:
        return time(_WORDS[text.lower()])
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if half := (found[4] or "").lower():
        hour = hour % 12 + (12 if half == "p" else 0)
    try:
        return time(hour, minute, second)
    except ValueError:
        return None


def _day(text: str, today: date) -> date | None:
    if text in ("today", "tomorrow"):
        return today + timedelta(days=text == "tomorrow")
    try:
        return date(*map(int, text.split("-")))
    except ValueError:
        return None


def check_deadline(options: Mapping[str, str], time_s: int, now: datetime) -> None:
    """Raise RequestError where Slurm would take the job and remove it before it starts, as it cannot end before its deadline."""
    deadline, begin = (moment_of(options.get(name, "now"), now) for name in ("deadline", "begin"))
    if deadline is None or begin is None:
        return
    time_s = -(-time_s // 60) * 60  # Slurm counts limits in minutes
    start = max(now, begin)
    left = int(deadline.timestamp() - start.timestamp())
    if time_s < left:
        return
    said = f"deadline={options['deadline']}" + (f" with begin={options['begin']}" if begin > now else "")
    leaves = f"leaves {format_time(left)}" if left > 0 else "leaves no time"
    latest = start + timedelta(seconds=time_s + 60)
    less = left - left % 60 - 60
    shorter = f", or for less than that with --time {format_time(less)}" if less > 0 else ""
    raise RequestError(
        f"--sbatch {said}: that {leaves} for a job that may take {format_time(time_s)}, and Slurm removes a job that cannot end before its deadline. "
        f"Ask for a later one, deadline={latest:%Y-%m-%dT%H:%M:%S} or after{shorter}, or leave it out."
    )
