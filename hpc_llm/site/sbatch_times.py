"""Moments as sbatch reads them in --begin and --deadline, and whether a job can end between the two."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta

from hpc_llm.site.slurm_time import format_time
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.numbers import whole_number

_WORDS = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
"""Hours of the day."""
_DAYS = {"today": 0, "tomorrow": 1}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_LEAST_SECONDS = 1_000_000
"""What sbatch takes at least for seconds since 1970, behind `uts`."""
_FAR_S = 400_000_000_000
"""More seconds than the calendar of Python has."""
_EARLIEST, _LATEST = datetime(1970, 1, 2), datetime(9999, 12, 1)
"""Python knows no moments long before or behind them, and Slurm starts a job as ever, or never."""
_SECONDS = late_pattern(r"uts\ *\+?([0-9]{1,18})", re.IGNORECASE)
_FROM_NOW = late_pattern(r"now\ *(?:([+-])(\ *[0-9][0-9\ ]*)(?:(second|minute|hour|day|week)s?|$)|$)", re.IGNORECASE)
_WORD = late_pattern(f"({'|'.join((*_WORDS, *_DAYS))})", re.IGNORECASE)
_CLOCK = late_pattern(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})|(?!:))\ *(?:([ap])m)?", re.IGNORECASE)
_WITH_YEAR = late_pattern(r"([0-9]{4})-([0-9]{2})-([0-9]{1,2})")
_DAY_OF_YEAR = late_pattern(r"(?=([0-9]{1,2}))\1[./]?(?=([0-9]{1,2}))\2[./]?([0-9]{2}|(?![0-9]))")
"""Month, day and perhaps a year, each of the first two as long as digits follow, as sbatch reads them."""
_MONTHS, _DAYS_OF_MONTH = range(1, 13), range(1, 32)
_Date = tuple[int, int, int]
"""Year, month and day, which may be one that does not exist."""


def moment_of(text: str, now: datetime) -> datetime | None:
    """When sbatch takes a value to mean, at `now`; None of what it does not take, and of a day that does not exist.

    >>> noon = datetime(2027, 1, 20, 12, 0)
    >>> moment_of("now+2hours", noon), moment_of("11:30", noon), moment_of("2027-01-20T12:34", noon), moment_of("now+2h", noon)
    (datetime.datetime(2027, 1, 20, 14, 0), datetime.datetime(2027, 1, 21, 11, 30), datetime.datetime(2027, 1, 20, 12, 34), None)
    """
    if found := _SECONDS.fullmatch(text):
        seconds = int(found[1])
        return None if seconds < _LEAST_SECONDS else _shifted(datetime.fromtimestamp(0), seconds)
    read = _parts(text, now)
    if read is None:
        return None
    (year, month, day), clock = read
    if not _EARLIEST.year <= year < _LATEST.year:
        return _LATEST if year > now.year else _EARLIEST
    try:
        return datetime.combine(date(year, month, day), clock)
    except ValueError:
        return None


def names_no_day(text: str, now: datetime) -> bool:
    """Whether the value is well formed and its day does not exist: sbatch takes the next month's first ones for it.

    >>> names_no_day("2027-02-30", datetime(2027, 1, 20)), names_no_day("2027-2-30", datetime(2027, 1, 20))
    (True, False)
    """
    return _parts(text, now) is not None and moment_of(text, now) is None


def _parts(text: str, now: datetime) -> tuple[_Date, time] | None:
    """The day and the clock that a value says; what is said twice counts as the last says. None of what sbatch does not take."""
    day: tuple[int | None, int, int] | None = None
    clock: time | None = None
    place = 0
    while place < len(text):
        if text[place] in " -T":  # so a word with a capital T is none
            place += 1
        elif place == 0 and (found := _FROM_NOW.match(text)):
            moment = _shifted(now, _seconds(found))
            day, clock, place = (moment.year, moment.month, moment.day), moment.time(), found.end()
        elif found := _WORD.match(text, place):
            word, place = found[1].lower(), found.end()
            if word in _WORDS:
                clock = time(_WORDS[word])
            else:
                then = now.date() + timedelta(days=_DAYS[word])
                day = then.year, then.month, then.day
        elif ":" in text[place + 1 : place + 3]:
            found = _CLOCK.match(text, place)
            clock = _clock(found) if found else None
            if found is None or clock is None:
                return None
            place = found.end()
        else:
            found = _WITH_YEAR.match(text, place) or _DAY_OF_YEAR.match(text, place)
            day = _day(found) if found else None
            if found is None or day is None:
                return None
            place = found.end()
    return _completed(day, clock, now)


def _completed(day: tuple[int | None, int, int] | None, clock: time | None, now: datetime) -> tuple[_Date, time] | None:
    """The next such moment where the day, or its year, is not said; seconds decide nothing there."""
    if day is None and clock is None:
        return None
    clock = time() if clock is None else clock
    is_past = (clock.hour, clock.minute) <= (now.hour, now.minute)
    if day is None:
        then = now.date() + timedelta(days=is_past)
        return (then.year, then.month, then.day), clock
    year, month, of_month = day
    if year is None:
        today = now.month, now.day
        year = now.year + ((month, of_month) < today or ((month, of_month) == today and is_past))
    return (year, month, of_month), clock


def _seconds(found: re.Match[str]) -> int:
    """How long from now on is said, bounded."""
    number = whole_number((found[2] or "0").replace(" ", ""))
    seconds = _FAR_S if number is None else number * _UNITS[(found[3] or "second").lower()]
    return min(seconds, _FAR_S) * (-1 if found[1] == "-" else 1)


def _shifted(moment: datetime, seconds: int) -> datetime:
    """The moment so many seconds later by all clocks, whatever summer time does."""
    stamp = moment.timestamp() + seconds
    return datetime.fromtimestamp(min(max(stamp, _EARLIEST.timestamp()), _LATEST.timestamp()))


def _clock(found: re.Match[str]) -> time | None:
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    half = (found[4] or "").lower()
    if half == "p" and hour < 24:
        hour = 12 if hour == 12 else hour + 12
    elif half == "a":
        hour = 0 if hour == 12 else hour if hour < 12 else 24
    return None if hour > 23 or minute > 59 or second > 59 else time(hour, minute, second)


def _day(found: re.Match[str]) -> tuple[int | None, int, int] | None:
    """Year (None where none is said), month and day, whether that month has it or not."""
    if len(found[1]) == 4:
        year, month, day = map(int, found.groups())
        said: int | None = year
    else:
        month, day = int(found[1]), int(found[2])
        said = 2000 + int(found[3]) if found[3] and int(found[3]) else None
    return (said, month, day) if month in _MONTHS and day in _DAYS_OF_MONTH else None


def deadline_missed(options: Mapping[str, str], time_s: int, now: datetime) -> tuple[str, str] | None:
    """Why Slurm would take the job and remove it before it starts, as it cannot end before its deadline, and what to do; None where it can."""
    if "deadline" not in options:
        return None
    deadline, begin = (moment_of(options.get(name, "now"), now) for name in ("deadline", "begin"))
    if deadline is None or begin is None:
        return None
    time_s = -(-time_s // 60) * 60  # Slurm counts limits in minutes
    start = max(now, begin)
    left = int(deadline.timestamp() - start.timestamp())
    if time_s < left:
        return None
    said = f"deadline={options['deadline']}" + (f" with begin={options['begin']}" if begin > now else "")
    leaves = f"leaves {format_time(left)}" if left > 0 else "leaves no time"
    latest = start + timedelta(seconds=time_s + 60)
    less = left - left % 60 - 60
    shorter = f", or for less than that with --time {format_time(less)}" if less > 0 else ""
    return (
        f"--sbatch {said}: that {leaves}, and Slurm removes a job that cannot end before its deadline: this one may take {format_time(time_s)}",
        f"Ask for a later one, deadline={latest:%Y-%m-%dT%H:%M:%S} or after{shorter}, or leave it out.",
    )
