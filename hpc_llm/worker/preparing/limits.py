"""Little time and memory for what a stranger wrote and we run: a chat template comes with a model, as a program."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 5.0
MEMORY_BYTES = 512 << 20


class TakesTooLong(BaseException):
    """The time is over. No Exception, so that the program cannot catch it."""


@contextmanager
def limited() -> Iterator[None]:
    """Do something within the limits; only in the main thread, as no other hears of the time.

    Raises:
        TakesTooLong, MemoryError: it went beyond them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _end)
    memory = resource.getrlimit(resource.RLIMIT_AS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_less(_used() + MEMORY_BYTES, memory[0]), memory[1]))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # also where the time was over just before it was stopped
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGALRM, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise TakesTooLong


def _used() -> int:
    """Bytes of the addresses that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _less(one: int, other: int) -> int:
    return one if other == resource.RLIM_INFINITY else min(one, other)
