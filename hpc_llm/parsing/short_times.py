"""Times without their year, or without their day: those above the first full date tell when a run began, where its date says the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

_CLOCK = re.compile(
    rb"(?im)(?:^[\[(]?(?:\d{1,4}([/.])\d{1,2}\1\d{2,4},? )?|@ |\bat )(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?:(?P<second>:[0-5]\d)(?:[.,]\d{1,9})?)?(?P<half> ?[AP]M)?"
    rb"(?:\]|\)|\||$|[ \t](?![ \t]*<))"
)
"""A time of the day without its date, or with one in which day and month may be mistaken, where programs write theirs."""
_TIME = re.compile(
    rb"(?<=[ T])(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?P<half> [AP]M)?(?![\d:])(?:(?: [A-Z]{2,5})? (?P<year>20\d\d)\b)?"
)
_DAY_BEFORE = re.compile(
    rb"(?:(?<![\w.])[IWEF](?P<year>20\d\d)?(?P<month>1[0-2]|0?[1-9])(?P<day>0[1-9]|[12]\d|3[01])"
    rb"|(?<![\w/.-])(?P<month_2>0[1-9]|1[0-2])[-/](?P<day_2>0[1-9]|[12]\d|3[01])|(?:\b[A-Z][a-z]{2},? )?\b(?:(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day_3>\d{1,2})"
    rb"|(?P<day_4>\d{1,2}) (?P<name_2>[A-Z][a-z]{2})(?: (?P<year_2>20\d\d))?))[ T]$"
)
"""The day before such a time: as glog, torch and vLLM write it, and as `date` and syslog do."""
_DAY_IS_LONG = 24
"""Bytes of that at most."""
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_APART = timedelta(seconds=60)
"""By so much two times of one moment may differ."""
_LONGEST = timedelta(days=7)
"""So long before the first full date a run may have begun."""
_DAY = 24 * 3600
_MOST = 64
"""So many with a day are looked at in one piece of text."""


@dataclass(frozen=True)
class ShortTime:
    """A time of the day, with what is told of its day."""

    second: int
    """Of the day."""
    month: int | None = None
    day: int | None = None
    year: int | None = None
    is_of_end: bool = False
    """It may be that of the end of the run before."""

    def begun(self, later: datetime) -> datetime | None:
        """When a run began of which a line below tells the full time; None where both cannot be joined with certainty.

        >>> later = datetime(2025, 1, 1, 0, 0, 30)
        >>> ShortTime(86399, 12, 31).begun(later), ShortTime(86399).begun(later), ShortTime(3600).begun(later)
        (datetime.datetime(2024, 12, 31, 23, 59, 59), datetime.datetime(2024, 12, 31, 23, 59, 59), None)
        """
        if self.month is None or self.day is None:
            ago = (later - datetime.min - timedelta(seconds=self.second)).seconds
            return _nearer(later - timedelta(seconds=ago if ago < _DAY // 2 else ago - _DAY), later, _APART)
        for year in (later.year, later.year - 1) if self.year is None else (self.year,):
            try:
                time = datetime(year, self.month, self.day) + timedelta(seconds=self.second)
            except ValueError:  # the 29th of February
                continue
            if (begun := _nearer(time, later, _LONGEST)) is not None:
                return None if self.is_of_end and begun < later else begun
            if self.year is not None:
                return later  # that of a build, as uname tells it, or of the end, which an epilogue tells first
        return None


def _nearer(time: datetime, later: datetime, longest: timedelta) -> datetime | None:
    """The first of both, where they are no longer apart than that, and the order of their lines is that of their times."""
    return min(time, later) if -_APART <= later - time <= longest else None


def first_short(
    text: bytes, begin: int, end: int, is_meant: Callable[[bytes, int, int], bool], of_an_end: re.Pattern[bytes]
) -> ShortTime | None:
    """The first of such times between these positions; one with a day only where `is_meant` holds."""
    end = max(begin, end)
    clock = next(
        ((one.start(), second) for one in _CLOCK.finditer(text, begin, end) if (second := _second(one)) is not None),
        None,
    )
    until = end if clock is None else clock[0]
    for time, start, stop in islice(_with_days(text, begin, until), _MOST):
        if is_meant(text, start, stop):
            line_end = text.find(b"\n", stop)
            is_end = of_an_end.search(text, text.rfind(b"\n", 0, start) + 1, line_end if line_end >= 0 else len(text))
            return replace(time, is_of_end=is_end is not None)
    return None if clock is None else ShortTime(clock[1])


def _with_days(text: bytes, begin: int, end: int) -> Iterator[tuple[ShortTime, int, int]]:
    """Those with their day, and where they begin and end."""
    for one in _TIME.finditer(text, begin, end):
        day = _DAY_BEFORE.search(text, max(begin, one.start() - _DAY_IS_LONG), one.start())
        if day is not None and (time := _with_day(one, day)) is not None:
            yield time, day.start(), one.end()


def _with_day(time: re.Match[bytes], day: re.Match[bytes]) -> ShortTime | None:
    second, name = _second(time), (day["name"] or day["name_2"] or b"").decode()
    if second is None or (name and name not in _MONTHS):
        return None
    month = _MONTHS.index(name) + 1 if name else int(day["month"] or day["month_2"])
    year = day["year"] or day["year_2"] or time["year"]
    number = day["day"] or day["day_2"] or day["day_3"] or day["day_4"]
    return ShortTime(second, month, int(number), int(year) if year else None)


def _second(clock: re.Match[bytes]) -> int | None:
    """The second of the day; None of hours and minutes without AM or PM, since a duration is written so."""
    hour, half = int(clock["hour"]), (clock["half"] or b"").strip().upper()
    if half and 1 <= hour <= 12:
        hour = hour % 12 + 12 * (half == b"PM")
    elif half or clock["second"] is None:
        return None
    return hour * 3600 + int(clock["minute"]) * 60 + int((clock["second"] or b":0").lstrip(b":"))
