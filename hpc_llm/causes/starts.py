"""A program that adds to one log each time it is started: the line with which it begins stands there again, long after the one before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

_STAMPED = re.compile(
    rb"^[^\w\n]{0,4}(?P<time>20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,6})?(?P<said>[^\n]{12,400})$", re.MULTILINE
)
_WORDS = re.compile(
    rb"(?i)\b(?:start|begin|launch|initiali[sz]|inicia|d[e\xc3]\xa9?marr|beginn|avvi|main\b)|\xe5\xbc\x80\xe5\xa7\x8b|\xe5\x90\xaf\xe5\x8a\xa8"
)
"""What such a line says."""
_HEAD = 1 << 13
_LATER_S = 90
"""So long after the last line of the one before it stands at least."""
_NEAR = 1 << 12


def _time(stamp: re.Match[bytes]) -> datetime | None:
    try:
        return datetime.fromisoformat(stamp["time"].decode())
    except ValueError:  # the 31st of February
        return None


@dataclass
class Starts:
    """Looks for that line in one piece of a text after another."""

    said: bytes | None = None
    """What it says behind its time; nothing where the first line tells no start."""
    last: datetime | None = None
    """The last time so far."""

    def of(self, text: bytes) -> Iterator[int]:
        """Where in `text` the program was started again."""
        if self.said is None:
            first = _STAMPED.match(text[:_HEAD].lstrip())
            self.said = first["said"] if first is not None and _WORDS.search(first["said"]) else b""
            if first is not None:
                self.last = _time(first)
        if not self.said:
            return
        at = text.find(self.said)
        while at >= 0:
            line = text.rfind(b"\n", 0, at) + 1
            stamp = _STAMPED.match(text, line)
            before = self._before(text, line)
            time = _time(stamp) if stamp is not None and stamp["said"] == self.said else None
            if time is not None and before is not None and (time - before).total_seconds() >= _LATER_S:
                yield line
            at = text.find(self.said, at + 1)
        self.last = self._before(text, len(text))

    def _before(self, text: bytes, position: int) -> datetime | None:
        """The last time above that."""
        stamps = list(_STAMPED.finditer(text, max(0, position - _NEAR), position))
        return next((time for one in reversed(stamps) if (time := _time(one)) is not None), self.last)
