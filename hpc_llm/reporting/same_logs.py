"""Logs of other programs that hold the same bytes: a backup, a download made twice, a log beside its compressed copy.

They are one measurement. A row alone does not prove it, as runs that a program measured coarsely may agree in all it prints; the text does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import astuple, replace
from hashlib import sha256
from pathlib import Path

from hpc_llm.errors import RequestError
from hpc_llm.parsing import Row
from hpc_llm.text import sources

_BLOCK = 1 << 20


class SameLogs:
    """Knows the rows of logs that were read, and says which is the copy of another."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, list[str]] = {}
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

    def _is_same(self, one: str, other: str) -> bool:
        digest = self._digest(one)
        return digest is not None and digest == self._digest(other)

    def _digest(self, source: str) -> bytes | None:
        """Of the text as it is unpacked; None where it cannot be read again."""
        if source not in self._digests:
            self._digests[source] = _digest_of(Path(source))
        return self._digests[source]


def _digest_of(path: Path) -> bytes | None:
    found = sha256()
    try:
        with sources.open_log(path, quietly=True) as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except (OSError, EOFError, ValueError, RequestError):
        return None
    return found.digest()
