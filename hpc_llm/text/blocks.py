"""Blocks of cleaned text that know their line numbers, from any log that `hpc_llm.text.sources` can read.

Line numbers count newlines only, as `grep -n` and editors do: the states of a progress bar are one line.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import IO, Any

from hpc_llm.text import notebooks, sources
from hpc_llm.text.json_text import figures

_PART = 1 << 12
_LINE_END = re.compile(rb"\r\n?|\n|#015|" + sources.IN_A_LINE)


@dataclass(frozen=True)
class Block:
    """Text that begins at the beginning of a line and ends at the end of one."""

    text: bytes
    """Cleaned: every state of a progress bar is a line of its own."""
    raw: bytes
    """As it stands in the file, or the same where that makes no difference to its lines."""
    first_line: int
    """Number of the first line, from 1."""
    offset: int
    """Bytes of cleaned text before this block."""
    numbers: tuple[int, ...] | None = None
    """Number in the file of each line of `raw`, where they do not follow each other, as in a notebook: a line of its file may be
    many of what was printed."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return max(len(self.text), len(self.raw))

    def line_number(self, position: int) -> int:
        """Number in the file of the line at `position` of the text."""
        part = min(max(0, position), len(self.text)) // _PART
        ends = self._ends[part] + self.text.count(b"\n", part * _PART, max(0, position))
        row = ends if self._newlines is None else self._newlines[min(ends, len(self._newlines) - 1)]
        return self.first_line + row if self.numbers is None else self.numbers[min(row, len(self.numbers) - 1)]

    @cached_property
    def _ends(self) -> array[int]:
        """Lines that end before each part of the text: a block may be asked for as many places as it has lines."""
        starts = range(0, len(self.text), _PART)
        return array("L", accumulate((self.text.count(b"\n", start, start + _PART) for start in starts), initial=0))

    @cached_property
    def _newlines(self) -> array[int] | None:
        """How many of the first lines of the text end with a newline in the file; None where all do."""
        if not any(other in self.raw for other in (b"\r", b"#015", sources.HOLE)):
            return None
        return array("L", accumulate((end[0].endswith(b"\n") for end in _LINE_END.finditer(self.raw)), initial=0))

    def line(self, position: int) -> bytes:
        """The line at `position`, without its end."""
        end = self.text.find(b"\n", position)
        return self.text[self.line_start(position) : end if end >= 0 else len(self.text)]

    def line_start(self, position: int) -> int:
        return self.text.rfind(b"\n", 0, position) + 1


class _WholeLines:
    """A file whose every `read` ends at the end of a line, and that knows how many lines came before."""

    def __init__(self, file: sources.Readable) -> None:
        self._file = file
        self._rest = b""
        self.last = b""
        """What was read last: at the end of the file still that."""
        self.lines_before = 0

    def read(self, size: int) -> bytes:
        if text := self._next(size):
            self.lines_before += self.last.count(b"\n")
            self.last = text
        return text

    def _next(self, size: int) -> bytes:
        while True:
            more = sources.next_text(self._file, size)
            text = self._rest + more
            cut = (text.rfind(b"\n") + 1) or (text.rfind(b"\r") + 1)
            if not more or len(text) > sources.LONGEST_LINE:
                cut = cut if more and cut else len(text)
            if cut or not text:
                self._rest = text[cut:]
                return text[:cut]
            self._rest = text


def blocks(file: sources.Readable, name: object) -> Iterator[Block]:
    """The text of `file` in blocks; of a notebook the output of its cells."""
    lines = _WholeLines(file)
    offset = 0
    for number, text in enumerate(sources.blocks(lines, name)):
        if number == 0 and _may_be_notebook(lines.last):
            whole = lines.last + _rest_of(lines)
            found = _notebook(whole) if len(whole) <= sources.LARGEST_DOCUMENT else None
            if found is not None:
                yield found
                return
            text = sources.clean(whole)
            yield Block(text, whole, 1, 0)
            offset = len(text)
            continue
        yield Block(text, lines.last, lines.lines_before + 1, offset)
        offset += len(text)


def _may_be_notebook(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and b'"cells"' in start[: sources.SAMPLE]


def _rest_of(lines: _WholeLines) -> bytes:
    parts, size = [], 0
    while size < sources.LARGEST_DOCUMENT and (part := lines.read(sources.BLOCK)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _notebook(whole: bytes) -> Block | None:
    """The output of a notebook's cells as they ran, whose lines know the numbers that they have in the file."""
    try:
        cells = figures(whole)["cells"]
        texts = [[text for output in cell.get("outputs", ()) for text in _texts(output)] for cell in cells]
        order = notebooks.as_run(cells)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    placed = _placed(whole, texts)
    lines: list[bytes] = []
    numbers: list[int] = []
    for at, text in (one for cell in order for one in placed[cell]):
        if numbers and at + 1 != numbers[-1]:  # another text begins
            lines.append(b"")
            numbers.append(max(at, 1))
        printed = text.rstrip("\n").encode("utf-8", "replace").split(b"\n")
        lines += printed
        numbers += [at + 1] * len(printed)
    joined = b"\n".join(lines) + b"\n"
    return Block(sources.clean(joined), joined, 1, 0, tuple(numbers) or None)


def _placed(whole: bytes, texts: Sequence[Sequence[str]]) -> list[list[tuple[int, str]]]:
    """The texts of each cell, which follow each other in the file, with the lines of it that stand before each."""
    placed: list[list[tuple[int, str]]] = []
    position = at = 0
    for of_cell in texts:
        placed.append([])
        for text in of_cell:
            before = position
            quoted = json.dumps(text)[1:-1].encode()
            found = whole.find(quoted, position)
            if found < 0:
                quoted = json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
                found = whole.find(quoted, position)
            if found >= 0:
                position = found
            at += whole.count(b"\n", before, position)
            placed[-1].append((at, text))
    return placed


def _texts(output: dict[str, Any]) -> Iterator[str]:
    """The lines of one output of a cell."""
    if "traceback" in output:
        yield from map(str, output["traceback"])
    text = output.get("text") or (output.get("data") or {}).get("text/plain") or ()
    yield from [text] if isinstance(text, str) else map(str, text)


def open_blocks(file: IO[bytes], name: object, tell: Callable[[], None] | None = None) -> Iterator[Block]:
    """`blocks`, and nothing at all of a file that is no text, of which `tell` is told."""
    first = True
    for block in blocks(file, name):
        if first and sources.is_binary(block.text[:4096]):
            if tell is not None:
                tell()
            return
        first = False
        yield block
