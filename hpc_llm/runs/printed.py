"""What a run printed, read once for all who ask: whole where it is small, else its beginning and its end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hpc_llm.causes.log import LogFindings
from hpc_llm.records.files import open_regular
from hpc_llm.records.run import RunPaths
from hpc_llm.text import sources
from hpc_llm.text.blocks import Block, open_blocks

WHOLE = 1 << 22
"""Bytes of one file that are read in any case."""
BEGINNING = 1 << 20
END = 3 << 20
_LAUNCH = re.compile(rb"^hpc-llm: [^,\s]+, [^\n]+, modules ", re.MULTILINE)
"""What the job script prints when it starts to train."""
_LAUNCH_TEXT = b", modules "


def read_output(run: RunPaths) -> tuple[list[LogFindings], int]:
    """What the output and the errors say, and how many tries they show to have begun."""
    logs: list[LogFindings] = []
    begun = 0
    for path in (run.stdout, run.stderr):
        blocks = _Counted(_blocks(path))
        logs.append(LogFindings(path.name, looks_for_end=False).read(blocks))
        begun += blocks.launches
    return logs, begun


class _Counted:
    """Blocks that are passed on, and the launches in them."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self.launches = 0

    def __iter__(self) -> Iterator[Block]:
        for block in self._blocks:
            if _LAUNCH_TEXT in block.text:
                self.launches += len(_LAUNCH.findall(block.text))
            yield block


def _blocks(path: Path) -> Iterator[Block]:
    """The blocks of a file that may be huge, a pipe, or not there."""
    try:
        file = open_regular(path)
    except OSError:
        return
    if file is None:
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        yield from open_blocks(file, path) if size <= WHOLE else _beginning_and_end(file, size)


def _beginning_and_end(file: IO[bytes], size: int) -> Iterator[Block]:
    first = file.read(BEGINNING)
    first = first[: first.rfind(b"\n") + 1] or first
    text = sources.clean(first)
    if sources.is_binary(text[:4096]):
        return
    yield Block(text, first, 1, 0)
    lines, position = 1 + first.count(b"\n"), len(first)
    file.seek(position)
    while position < size - END and (skipped := file.read(min(sources.BLOCK, size - END - position))):
        lines += skipped.count(b"\n")
        if not skipped.strip(b"\0"):
            sources.skip_hole(file)
        position = file.tell()
    file.seek(max(min(position, size - END), 0))
    last = file.read(END)
    cut = last.find(b"\n") + 1
    last = last[cut:]
    if last:
        yield Block(sources.clean(last), last, lines + bool(cut), len(text))
