"""The one place through which everything printed goes: foreign text in it steers no terminal."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from hpc_llm.text.shown import shown


class Shown:
    """A text stream that writes what may be shown. It has no `buffer`, so that nothing is written past it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(shown(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "raw", "detach", "reconfigure"):
            raise AttributeError(name)
        return getattr(self._stream, name)


def _there(stream: TextIO | None, mode: str) -> TextIO:
    """The stream, or nothing in the place of one that the caller has closed, as in `hpc-llm ... >&-`.

    It is opened on the number that is free, so that no file of ours gets it, into which a child would print.
    """
    return stream if stream is not None else cast(TextIO, open(os.devnull, mode, encoding="utf-8"))


@contextmanager
def guarded() -> Iterator[None]:
    """Let everything be printed through `Shown` until the end."""
    sys.stdin = _there(sys.stdin, "r")
    before = _there(sys.stdout, "w"), _there(sys.stderr, "w")
    sys.stdout, sys.stderr = (cast(TextIO, Shown(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def steered(stream: TextIO) -> TextIO:
    """The stream itself, for what of our own moves the cursor of a terminal."""
    return stream._stream if isinstance(stream, Shown) else stream


def write_exactly(text: str) -> None:
    """Print to stdout byte for byte what a program is to read; to a person's terminal as it may be shown."""
    (sys.stdout if sys.stdout.isatty() else steered(sys.stdout)).write(text)


class Output:
    """Takes the bytes of a log: a terminal gets them as they may be shown, everything else as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace") if stream.isatty() else None

    def write(self, block: bytes) -> None:
        if self._decoder is None:
            steered(self._stream).buffer.write(block)
        else:
            self._stream.write(self._decoder.decode(block))

    def flush(self) -> None:
        self._stream.flush()
