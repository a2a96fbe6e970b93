"""How far a fetch is, for whoever watches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

_OFTEN_S = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a fetch is at one moment."""

    files: int = 0
    files_done: int = 0
    size: int = 0
    """Bytes of all files."""
    done: int = 0
    """Bytes of them that are here."""
    received: int = 0
    """Bytes that this command itself received."""
    elapsed_s: float = 0.0
    """Since the first byte was asked for."""
    note: str = ""
    """What it waits for; empty where it moves."""


class Watch:
    """Counts for all threads, and tells one listener, not too often."""

    def __init__(self, listener: Callable[[Progress], None] | None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._state = Progress()
        self._started = time.monotonic()
        self._told = 0.0

    @property
    def state(self) -> Progress:
        return self._state

    def begin(self, files: int, size: int) -> None:
        self._started = time.monotonic()
        self._change(replace(self._state, files=files, size=size))

    def here(self, size: int) -> None:
        """So many bytes were here already; fewer than none where they had to be thrown away."""
        with self._lock:
            self._change(replace(self._state, done=self._state.done + size))

    def received(self, size: int) -> None:
        with self._lock:
            state = self._state
            self._change(replace(state, done=state.done + size, received=state.received + size), often=True)

    def file_done(self) -> None:
        with self._lock:
            self._change(replace(self._state, files_done=self._state.files_done + 1))

    def tell(self, note: str) -> None:
        """Say what is waited for; nothing where it goes on."""
        with self._lock:
            if note != self._state.note:
                self._change(replace(self._state, note=note))

    def _change(self, state: Progress, often: bool = False) -> None:
        now = time.monotonic()
        self._state = replace(state, elapsed_s=now - self._started)
        if self._listener is not None and not (often and now - self._told < _OFTEN_S):
            self._told = now
            self._listener(self._state)
