"""Ctrl-C ends a command with 130 and without a traceback, wherever it comes about.

Python drops a KeyboardInterrupt that is raised in a callback of its own, as of a weak reference while something is imported: the
command went on as if nothing had been. And what a library makes of one may be another exception, which is a failure like any.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CODE = 130
_AGAIN_S = 0.02


class Interrupts:
    """Whether somebody has pressed Ctrl-C since the command began."""

    def __init__(self) -> None:
        self.seen = False
        self.is_owed = False
        """Python has dropped one, which is to be raised again."""
        self._is_in_hook = False
        self._otherwise = sys.unraisablehook

    def _raise(self, number: int, frame: Any) -> None:
        self.seen = True
        if not self._is_in_hook:  # where Python would drop it once more
            self.is_owed = False
            raise KeyboardInterrupt

    def _dropped(self, what: Any) -> None:
        """Raise one that Python drops again, a moment later, when the callback is over."""
        if not issubclass(what.exc_type, KeyboardInterrupt):
            self._otherwise(what)
            return
        self._is_in_hook = self.is_owed = True
        threading.Thread(target=self._raise_again, daemon=True).start()
        self._is_in_hook = False

    def _raise_again(self) -> None:
        time.sleep(_AGAIN_S)
        while self.is_owed:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_AGAIN_S)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Let no Ctrl-C get lost within. Where it is ignored, or somebody else's to handle, that stays so."""
    found = Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before not in (signal.default_int_handler, _end):
        yield found
        return
    hook = sys.unraisablehook
    sys.unraisablehook = found._dropped
    signal.signal(signal.SIGINT, found._raise)
    try:
        yield found
    finally:
        found.is_owed = False
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def end_at_once() -> None:
    """From now on Ctrl-C ends the process where it stands: before a command has begun, and when it is over."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: Any) -> None:
    os._exit(CODE)
