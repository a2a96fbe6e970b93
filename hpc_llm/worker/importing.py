"""Imports that take seconds: several at a time, and without looking through what they make."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module


@contextmanager
def uncollected() -> Iterator[None]:
    """For imports: the collector waits, and leaves what they made alone from then on.

    torch and transformers make hundreds of thousands of objects that stay: going through them again and again takes a quarter of the time of
    their imports, and part of every later collection.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextmanager
def importing(names: Sequence[str]) -> Iterator[None]:
    """Import these while what is inside runs, which must import none of them; all is imported behind it.

    What cannot be imported is told by who needs it.
    """
    thread = threading.Thread(target=_import, args=(names,), name="imports", daemon=True)
    with uncollected():
        thread.start()
        try:
            yield
        finally:
            thread.join()


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(Exception):
            import_module(name)
