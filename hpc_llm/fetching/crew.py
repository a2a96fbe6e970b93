"""Several files at once, in threads: the first that fails ends them all, and an interrupted program need not wait for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from hpc_llm.fetching.patience import Stopped

T = TypeVar("T")

HANDS = 4
_GRACE_S = 2.0
_LOOK_S = 0.2


def all_of(items: Sequence[T], work: Callable[[T], None], stop: threading.Event) -> None:
    """Do `work` for each item. Raises what the first failure raised."""
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)
    failures: list[BaseException] = []
    hands = [
        threading.Thread(target=_hand, args=(waiting, work, stop, failures), daemon=True)
        for _ in range(min(HANDS, len(items)))
    ]
    for hand in hands:
        hand.start()
    try:
        while alive := [hand for hand in hands if hand.is_alive()]:
            alive[0].join(_LOOK_S)
    except BaseException:
        stop.set()
        for hand in hands:
            hand.join(_GRACE_S)
        raise
    if failures:
        raise failures[0]


def _hand(
    waiting: queue.SimpleQueue[T], work: Callable[[T], None], stop: threading.Event, failures: list[BaseException]
) -> None:
    while not stop.is_set():
        try:
            item = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            work(item)
        except Stopped:
            return
        except BaseException as error:
            failures.append(error)
            stop.set()
