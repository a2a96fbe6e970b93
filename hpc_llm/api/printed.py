"""What a run prints, as it was printed so far or while it goes on."""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hpc_llm.api.handle import Named, Run, one_run
from hpc_llm.errors import RequestError
from hpc_llm.records.files import open_regular

if TYPE_CHECKING:
    from hpc_llm.runs import RunStatus

Stream = Literal["stdout", "stderr"]

_POLL_S = 0.5
_CHECK_S = 5.0
"""How often the scheduler is asked whether the run is over, while nothing new is printed."""
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Printed:
    """A piece of a run's output."""

    stream: Stream
    text: str
    """As it was printed: whole lines or parts of them, and nothing hidden that may steer a terminal."""


def logs(
    run: Named, *, logs: str | os.PathLike[str] | None = None, follow: bool = False, timeout: float | None = None
) -> Iterator[Printed]:
    """What the run has printed, its standard output first; with `follow` also what it prints from now on, to its end.

    `timeout` ends the following after so many seconds; the run goes on.

    Raises:
        RequestError: there is no such run, or its output is no regular file.
    """
    return _decoded(blocks(one_run(run, logs), follow=follow, timeout=timeout))


def _decoded(pieces: Iterator[tuple[Stream, bytes]]) -> Iterator[Printed]:
    make = codecs.getincrementaldecoder("utf-8")
    decoders: dict[Stream, codecs.IncrementalDecoder] = {"stdout": make("replace"), "stderr": make("replace")}
    for stream, block in pieces:
        if text := decoders[stream].decode(block):
            yield Printed(stream, text)
    for stream, decoder in decoders.items():
        if rest := decoder.decode(b"", final=True):
            yield Printed(stream, rest)


def blocks(
    run: Run,
    *,
    follow: bool = False,
    timeout: float | None = None,
    on_status: Callable[[RunStatus], None] | None = None,
) -> Iterator[tuple[Stream, bytes]]:
    """The same as bytes; `on_status` gets what the scheduler says while the run is followed."""
    files = [_Growing("stdout", run.paths.stdout), _Growing("stderr", run.paths.stderr)]
    until = None if timeout is None else time.monotonic() + timeout
    for file in files:
        yield from file.more()
    while follow:
        over = _is_over(run, on_status)
        check = time.monotonic() + _CHECK_S
        while time.monotonic() < check:
            places = [file.place for file in files]
            for file in files:
                yield from file.more()
            if over and places == [file.place for file in files]:
                return
            if until is not None and time.monotonic() >= until:
                return
            time.sleep(_POLL_S)


@dataclass
class _Growing:
    """A file that may grow, or not be there yet."""

    stream: Stream
    path: Path
    place: int = 0
    """Bytes that were read."""

    def more(self) -> Iterator[tuple[Stream, bytes]]:
        """What it holds beyond what was read."""
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            return
        if file is None:
            raise RequestError(f"{self.path} is no regular file: it holds no output.")
        with file:
            file.seek(self.place)
            while block := file.read(_BLOCK_BYTES):
                self.place += len(block)
                yield self.stream, block


def _is_over(run: Run, on_status: Callable[[RunStatus], None] | None) -> bool:
    if run.paths.exit.exists():
        return True
    now = run.status()
    if on_status is not None:
        on_status(now)
    return now.is_over
