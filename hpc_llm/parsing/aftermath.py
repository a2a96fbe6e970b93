"""A text that stands behind the end of a job: the times in it tell whether it may be that job's still."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from hpc_llm.causes.later import AT_ONCE_S

_STAMP = re.compile(rb"(?<![\d.])(20\d\d-[01]\d-[0-3]\d)[ T_]([0-2]\d:[0-5]\d:[0-5]\d)")
_DATE = re.compile(
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} \d\d:\d\d:\d\d)"
    rb"(?: [A-Z]{2,5})? (20\d\d)\b"
)
"""As `date` and nvidia-smi print it."""
_STAMPS = 16
"""So many of a piece of text are looked at."""
_DYING = timedelta(minutes=5)
"""So long after the scheduler's word a job may go on to print."""


@dataclass
class Aftermath:
    """A text that stands behind the end of a job."""

    job: str
    """The one that was ended."""
    at: datetime | None = None
    """When."""
    is_later: bool = False
    """A time in it shows that the job was over long before."""
    is_at_once: bool = False
    """The first time in it is that of the job's end, as where the parts of a job are ended one after the other."""

    @staticmethod
    def of(match: re.Match[bytes]) -> Aftermath:
        """What begins behind the scheduler's line."""
        return Aftermath(match["job"].decode("utf-8", "replace"), next(_times(match[0]), None))

    def look(self, text: bytes) -> None:
        """Some more of it."""
        if self.at is not None and not self.is_later:
            times = list(islice(_times(text), _STAMPS))
            self.is_later = any(time > self.at + _DYING for time in times)
            self.is_at_once = self.is_at_once or any(
                abs(time - self.at).total_seconds() < AT_ONCE_S for time in times[:1]
            )


def _times(text: bytes) -> Iterator[datetime]:
    for found in _STAMP.finditer(text):
        yield from _parsed(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S")
    for found in _DATE.finditer(text):
        yield from _parsed(f"{found[1].decode()} {found[2].decode()}", "%b %d %H:%M:%S %Y")


def _parsed(text: str, form: str) -> Iterator[datetime]:
    try:
        yield datetime.strptime(text, form)
    except ValueError:  # the 31st of February
        return
