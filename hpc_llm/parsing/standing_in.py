"""Whether the steps that a library below a program prints are the run's, because the program prints none of its own.

All of a log has to be looked at for that: the program may print its first step behind any number of the library's. The
beginning answers for most logs, since it holds a step of the program; of others the rest is searched before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO

from hpc_llm.errors import pass_over
from hpc_llm.parsing.registry import LineFormat, formats_in, line_formats
from hpc_llm.parsing.rules import Kind
from hpc_llm.parsing.run import LogRun
from hpc_llm.text import sources

Again = Callable[[], AbstractContextManager[IO[bytes]]]
"""Opens the log once more, at its beginning."""


@dataclass(frozen=True)
class StandIn:
    """What a log is read with because of a library's steps."""

    formats: tuple[LineFormat, ...] = ()
    """Those whose steps may be the only ones."""
    stands_in: bool = False
    """Whether they are."""

    @property
    def is_open(self) -> bool:
        """Whether nobody can tell before all of it was read."""
        return bool(self.formats) and not self.stands_in


def stand_in(name: str, first: bytes, found: Iterable[LineFormat], again: Again | None) -> StandIn:
    """What stands in for the steps of the program of a log, of which `first` is the beginning with the formats that are in it.

    `again` gives all of it.
    """
    if any(not one.companion and _has_steps(one, first) for one in found):
        return StandIn()
    below = tuple(one for one in line_formats() if one.companion and one.stands_in)
    if again is None:
        return StandIn(below)
    with again() as file:
        if not any(one.is_in(block) for block in sources.blocks(file, name) for one in below):
            return StandIn()
    with again() as file:
        seen = _only_steps(below, sources.blocks(file, name))
    return StandIn(seen, stands_in=bool(seen))


def _only_steps(below: tuple[LineFormat, ...], blocks: Iterable[bytes]) -> tuple[LineFormat, ...]:
    """The libraries that print steps where a program above them prints none."""
    owners: set[LineFormat] = set()
    seen: set[LineFormat] = set()
    for block in blocks:
        owners |= {one for one in formats_in(block) if not one.companion}
        if any(_has_steps(one, block) for one in owners):
            return ()
        seen |= {one for one in below if one not in seen and _has_steps(one, block)}
    return tuple(one for one in below if one in seen) if owners else ()


def _has_steps(one: LineFormat, text: bytes) -> bool:
    rules = (rule for rule in one.rules if rule.kind is Kind.STEP)
    return any((rule.literal is None or rule.literal in text) and rule.pattern.search(text) for rule in rules)


def of_stream(file: IO[bytes]) -> Again | None:
    """How an open file is read once more and left where it is; None where it can be read only once."""
    if not getattr(file, "seekable", lambda: False)():
        return None
    begin = file.tell()

    @contextmanager
    def again() -> Iterator[IO[bytes]]:
        place = file.tell()
        file.seek(begin)
        try:
            yield file
        finally:
            file.seek(place)

    return again


def tell_of_lost_steps(name: str, runs: Iterable[LogRun]) -> None:
    """Say of a log that could be read only once that a library's steps may be its only ones."""
    known = [run for run in runs if not run.empty]
    below = {one.name for one in line_formats() if one.companion and one.stands_in}
    if any(run.has_steps for run in known) or not any(below & run.formats.keys() for run in known):
        return
    pass_over(
        name,
        f"the steps are those of a library below the program, which beyond {sources.HEAD >> 20} MiB are read of a file and not of a pipe: give the file",
    )
