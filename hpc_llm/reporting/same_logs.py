"""Logs and figures of runs that hold the same text: a backup, a download made twice, a log beside its compressed copy, an archive.

They are one measurement. A row alone does not prove it, as runs that a program measured coarsely may agree in all it prints; the text does,
whatever ends its lines, and however many empty ones end it. The logs of the ranks of one training are one measurement too.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import astuple, replace
from hashlib import sha256
from pathlib import Path
from typing import IO

from hpc_llm.errors import RequestError
from hpc_llm.parsing import Row
from hpc_llm.records.files import read_regular
from hpc_llm.runs.records import Records
from hpc_llm.text import sources

_BLOCK = 1 << 20
_NUMBER = re.compile(r"[0-9]+")


class SameLogs:
    """Knows the rows of logs that were read, and says which is the copy of another."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, list[str]] = {}
        self._ranks: dict[Hashable, str] = {}
        self._digests: dict[str, bytes | None] = {}

    def first_of(self, row: Row) -> str | None:
        """The log that was read before and has this row and the same text; None where there is none, or nothing was measured."""
        source = row.source
        if source is None or (row.step_time_s_mean is None and row.tokens_per_second is None and row.loss_last is None):
            return None
        others = self._seen.setdefault(astuple(replace(row, source=None, run_id=None)), [])
        # One file that holds a run twice says so in rows of its own, and no other file's text is read without need.
        copied = next((one for one in others if one != source and self._is_same(one, source)), None)
        if copied is None:
            others.append(source)
        return copied

    def rank_of(self, row: Row) -> str | None:
        """The log that was read before, of another rank of the same training; None where nothing tells. Ranks begin in one second and
        print the same losses, and what starts them gives their files names that differ in a number."""
        if row.source is None or row.started_at is None or row.loss_last is None or (row.world_size or 1) < 2:
            return None
        told = (row.format, row.started_at, row.loss_first, row.loss_last, row.eval_loss, row.measured_steps)
        first = self._ranks.setdefault((*told, row.world_size, _NUMBER.sub("#", row.source)), row.source)
        return None if first == row.source else first

    def _is_same(self, one: str, other: str) -> bool:
        digest = self._digest(one)
        return digest is not None and digest == self._digest(other)

    def _digest(self, source: str) -> bytes | None:
        """Of the text as it is unpacked; None where it cannot be read again."""
        if source not in self._digests:
            self._digests[source] = _digest_of(Path(source))
        return self._digests[source]


def measured_by(records: Records) -> list[Hashable]:
    """What tells the copies of a run's figures, whatever else of its folder was copied: its first name, and the text of each file of them.

    Names alone may be given twice, in two folders of runs.
    """
    name = str(records.experiment.get("run_id") or records.run.run_id)
    found: list[Hashable] = []
    for path in (records.run.result, records.run.steps):
        try:
            text = read_regular(path).replace(b"\r\n", b"\n").rstrip(b"\n")
        except (OSError, ValueError):
            continue
        if text:
            found.append((name, path.name, sha256(text).digest()))
    return found


def _digest_of(path: Path) -> bytes | None:
    try:
        with sources.open_log(path, quietly=True) as file:
            return text_digest(file)
    except (OSError, EOFError, ValueError, RequestError):
        return None


def text_digest(file: IO[bytes]) -> bytes:
    """SHA-256 of a text in which every line ends with a newline alone, without those at its end."""
    found, ends, held = sha256(), 0, b""
    while block := file.read(_BLOCK):
        block = held + block
        held = b"\r" if block.endswith(b"\r") else b""
        text = block.removesuffix(held).replace(b"\r\n", b"\n")
        if told := text.rstrip(b"\n"):
            for begin in range(0, ends, _BLOCK):
                found.update(b"\n" * min(_BLOCK, ends - begin))
            found.update(told)
            ends = 0
        ends += len(text) - len(told)
    found.update(held)
    return found.digest()
