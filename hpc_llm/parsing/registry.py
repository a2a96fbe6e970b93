"""The formats: every module of `hpc_llm.parsing.formats` that defines `FORMAT` is one.

A new format is a new module there and nothing else, or one of an installed package that an entry point of the group
`hpc_llm.log_formats` leads to, or is handed to `register`. Formats are told apart by content, never by file name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpc_llm.parsing.rows import TRAIN, Row, Step
from hpc_llm.parsing.rules import Rule, Value
from hpc_llm.registry import Modules, Registry
from hpc_llm.text import sources


@dataclass(frozen=True, kw_only=True, eq=False)
class LineFormat:
    """A program whose output is read line by line."""

    name: str
    hints: tuple[bytes, ...]
    """Plain texts: without any of them the output is not this program's."""
    confirm: re.Pattern[bytes] | None = None
    """Must be found as well, where the hints alone could stand in other output."""
    rules: tuple[Rule, ...]
    precedence: int = 50
    """Where a log holds the output of several programs, the format with the lowest number owns the steps."""
    bulk: Rule | None = None
    """The step lines as the program usually prints them, without `decode`: lets long logs be read fast. Its `literal`
    stands once in each step line; MORE rules are then for lines that it does not match."""
    companion: bool = False
    """Printed by a library below another program: gives the steps only where no other format does."""
    stands_in: bool = False
    """Of a companion: its step lines tell all of a step, and are the run's where the program prints none."""
    averages: bool = True
    """Whether the means of a run are those of its step lines; false where the program prints its own means."""
    single: bool = False
    """Whether the figures of a step line are of that step alone, and not of all steps since the line before."""
    packed: bool = False
    """Whether every sample is a full sequence, so that tokens follow from batch and length."""
    first_goes_on: bool = False
    """Whether the line after a process's first one may hold the time of the first, too."""
    one_loss: bool = False
    """Whether a step is printed by one rank alone, or with the same loss by all: other losses are another run's."""
    one_writer: bool = False
    """Whether it is a file that one process alone writes, with its clock: no other rank writes a step once more."""
    kind: str | None = TRAIN
    """What its figures measure; None where the output is no program's."""
    defaults: Mapping[str, Value] = field(default_factory=dict)
    """Columns that hold for every run of this program."""
    place: Callable[[Mapping[str, Value], Mapping[str, Value], bool], Mapping[str, Value] | None] | None = None
    """Gives the columns of a line whose figures mean different things: from what it says, what the run said before, and
    whether a step was seen; None where the line tells nothing."""
    finish: Callable[[dict[str, Value]], None] | None = None
    """Completes what was learned of a run once all of it was read."""

    def is_in(self, text: bytes) -> bool:
        """Whether `text` holds output of this program."""
        return any(hint in text for hint in self.hints) and (self.confirm is None or bool(self.confirm.search(text)))


@dataclass(frozen=True, kw_only=True, eq=False)
class DocumentFormat:
    """A file that is read whole, such as a JSON document."""

    name: str
    hints: tuple[tuple[bytes, ...], ...]
    """Groups of plain texts: all of one group must be in the file."""
    read: Callable[[bytes], Iterable[tuple[Row, Iterable[Step]]]]
    """The runs of the file with their steps; raises ValueError where the file is not of this format after all."""

    def is_in(self, text: bytes) -> bool:
        """Whether `text` may be such a document."""
        return any(all(hint in text for hint in group) for group in self.hints)


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderFormat:
    """A folder that is one run."""

    name: str
    is_in: Callable[[Path], bool]
    rows: Callable[[Iterable[Path]], Iterable[Row]]
    """One row a folder, in their order; many are read at a time."""
    within: Callable[[Path, Row], Iterable[Row]] = lambda folder, row: ()
    """Rows of what ran within the run of a folder, whose own row is given."""
    steps: Callable[[Path], Iterable[Step]]


Format = LineFormat | DocumentFormat | FolderFormat
_registry: Registry[Format] = Registry(
    "log format", Modules("hpc_llm.parsing.formats", "FORMAT"), lambda: (LineFormat, DocumentFormat, FolderFormat)
)


def register(found: Format) -> None:
    """Make a format known in this process. Raises ValueError where there is one of that name."""
    if any(one.name == found.name for one in _registry.own.values()):  # which is not always that of its module
        raise ValueError(f"there is a log format {found.name} already")
    _registry.register(found)
    for known in (formats, line_formats, document_formats, folder_formats, line_format):
        known.cache_clear()


def is_own(found: Format) -> bool:
    """Whether it is hpc-llm's, and no other program's."""
    return any(one is found for one in _registry.own.values())


@functools.cache
def formats() -> tuple[Format, ...]:
    """All formats: ours, sorted by name, then those of other packages. One that cannot be used costs one warning."""
    nearer = (*_registry.own.values(), *_registry.registered())
    return (*nearer, *(one for _, one in _registry.installed(taken={one.name for one in nearer})))


@functools.cache
def line_formats() -> tuple[LineFormat, ...]:
    """The line formats, the owner of steps first."""
    return tuple(sorted((f for f in formats() if isinstance(f, LineFormat)), key=lambda f: (f.precedence, f.name)))


@functools.cache
def document_formats() -> tuple[DocumentFormat, ...]:
    return tuple(f for f in formats() if isinstance(f, DocumentFormat))


@functools.cache
def folder_formats() -> tuple[FolderFormat, ...]:
    return tuple(f for f in formats() if isinstance(f, FolderFormat))


@functools.cache
def line_format(name: str) -> LineFormat:
    """The line format of that name."""
    return next(f for f in line_formats() if f.name == name)


def formats_in(text: bytes) -> tuple[LineFormat, ...]:
    """The line formats whose output is in `text`, where lines are searched at all."""
    searched = sources.without_endless_lines(text)
    return tuple(f for f in line_formats() if f.is_in(searched))
