"""When to try again, and how long to wait before it: a server that says so is heeded, a broken connection is taken up again."""

from __future__ import annotations

import email.utils
import re
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from hpc_llm.errors import FetchError

T = TypeVar("T")


class Headers(Protocol):
    """The headers of an answer, by names in any case."""

    def get(self, name: str, /) -> str | None: ...


MOST_FAILURES = 6
"""So often in a row, with no byte received between, it may fail."""
MOST_AT_FIRST = 3
"""So often no connection may come about before the server has answered once: there is no network to come back then."""
MOST_WAITS = 30
"""So often in a row a server may ask to wait, with no byte received between."""
LONGEST_WAIT_S = 3600.0
_LONGEST_PAUSE_S = 30.0
_LIMIT = re.compile(r'"\w+"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})')
"""The header RateLimit where nothing remains, and in how many seconds there is more."""


class TryAgain(Exception):
    """What failed can go well the next time; `wait_s` where the server said after how many seconds.

    `is_unreached` where no connection came about, so that nothing is known of a server.
    """

    def __init__(self, reason: str, wait_s: float | None = None, is_unreached: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s
        self.is_unreached = is_unreached


class Stopped(Exception):
    """Somebody else has given up, or the user has: there is no use in going on."""


def told_wait(headers: Headers, now: float) -> float | None:
    """Seconds that a server asks to wait, at the time `now`; None where it does not say.

    >>> told_wait({"Retry-After": "7"}, 0.0), told_wait({"RateLimit": '"api";r=0;t=55'}, 0.0), told_wait({}, 0.0)
    (7.0, 56.0, None)
    """
    limit = _LIMIT.search(headers.get("RateLimit") or "")
    if limit:
        return int(limit[1]) + 1.0
    text = (headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return float(text)
    try:
        return max(email.utils.parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class Patience:
    """Counts the failures of one errand; several threads have one each, and the same `stop` and `reached`."""

    def __init__(
        self,
        who: str,
        stop: threading.Event,
        tell: Callable[[str], None],
        reached: threading.Event,
        keeps: Callable[[], bool],
    ) -> None:
        """`reached` is set where the server has answered once; `keeps` says whether anything lies here to go on with."""
        self._who = who
        self._stop = stop
        self._tell = tell
        self._reached = reached
        self._keeps = keeps
        self._failures = self._waits = 0

    def moved(self) -> None:
        """Something was received, so what failed before counts no more."""
        self._reached.set()
        self._failures = self._waits = 0

    def tell(self, note: str) -> None:
        """Say what takes its time; nothing where it goes on."""
        self._tell(note)

    def check(self) -> None:
        """Raise Stopped where there is no use in going on."""
        if self._stop.is_set():
            raise Stopped

    def run(self, errand: Callable[[], T]) -> T:
        """Do it until it goes well."""
        while True:
            try:
                found = errand()
            except TryAgain as error:
                self.wait(error)
            else:
                self._reached.set()
                return found

    def wait(self, error: TryAgain) -> None:
        """Wait before the next try. Raises FetchError where there have been enough of them."""
        if not error.is_unreached:
            self._reached.set()
        pause = self._told(error.wait_s) if error.wait_s is not None else self._pause(error)
        if self._stop.wait(pause):
            raise Stopped
        self._tell("")

    def _told(self, wait_s: float) -> float:
        self._waits += 1
        if wait_s > LONGEST_WAIT_S or self._waits > MOST_WAITS:
            raise FetchError(f"{self._who} asks to wait {wait_s:.0f} s before it sends more. {self._left()}")
        self._tell(f"{self._who} asks to wait {wait_s:.0f} s")
        return wait_s

    def _pause(self, error: TryAgain) -> float:
        self._failures += 1
        is_known = self._reached.is_set()
        if self._failures >= (MOST_FAILURES if is_known else MOST_AT_FIRST):
            way = "" if is_known else " Fetch where there is a way out to it."
            raise FetchError(
                f"no way through to {self._who}, {self._failures} times in a row: {error.reason}. {self._left()}{way}"
            )
        pause = min(0.5 * 2.0 ** (self._failures if is_known else 1), _LONGEST_PAUSE_S)
        self._tell(f"{error.reason}; again in {pause:.0f} s")
        return pause

    def _left(self) -> str:
        """What becomes of what there is, as a sentence."""
        return (
            "What was fetched is kept: the same command goes on with it." if self._keeps() else "Nothing was fetched."
        )
