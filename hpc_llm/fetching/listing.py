"""What a source says that it has: files with their sizes and digests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.errors import FetchError
from hpc_llm.records.fetched import STATE
from hpc_llm.text.shown import one_line

_LONGEST_PATH = 1000
_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_DIGESTS = {"sha256": re.compile(r"[0-9a-f]{64}"), "git-sha1": re.compile(r"[0-9a-f]{40}")}


@dataclass(frozen=True)
class Entry:
    """One file of a source."""

    path: str
    """Relative to the model or data set, with slashes."""
    size: int
    """Bytes."""
    algorithm: str
    """How `digest` is computed: sha256, or git-sha1 as git names a file of that content."""
    digest: str
    """Empty until `Source.settle` where it is not listed."""

    def hasher(self) -> Any:
        """A new sum of hashlib's, into which the content goes."""
        if self.algorithm == "git-sha1":
            return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return hashlib.sha256()

    @property
    def key(self) -> str:
        """A name for this content at this place, which no other has."""
        return hashlib.sha256(f"{self.algorithm} {self.digest} {self.path}".encode()).hexdigest()


@dataclass(frozen=True)
class Listing:
    """All files of a model or data set at one commit."""

    kind: str
    """`model` or `dataset`."""
    name: str
    """As the source itself spells it."""
    commit: str
    """Empty where the source has none."""
    entries: Sequence[Entry]


def checked_entry(path: object, size: object, algorithm: str, digest: object, who: str) -> Entry:
    """An entry of what `who` lists. Raises FetchError for what no honest source says, as a path that leads elsewhere."""
    if not isinstance(path, str) or not is_safe_path(path):
        raise FetchError(
            f"{who} lists a file by a name that is none: {one_line(repr(path))[:200]}. Nothing was fetched."
        )
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if not is_size or not isinstance(digest, str) or not _DIGESTS[algorithm].fullmatch(digest):
        raise FetchError(
            f"{who} lists {one_line(path)} without a size and a digest by which it could be checked. Nothing was fetched."
        )
    assert isinstance(size, int)
    return Entry(path, size, algorithm, digest)


def is_safe_path(path: str) -> bool:
    """Whether a path names a file below the folder that it is put into, and none of what is ours or git's there.

    >>> is_safe_path("data/a.parquet"), is_safe_path("../a"), is_safe_path("/a"), is_safe_path("a//b"), is_safe_path(".git/hooks/x")
    (True, False, False, False, False)
    """
    parts = path.split("/")
    if len(path) > _LONGEST_PATH or _NOT_IN_PATHS.search(path) or parts[0].lower() in (STATE, ".git"):
        return False
    return all(part not in ("", ".", "..") and len(part.encode("utf-8", "replace")) < 256 for part in parts)


def total_size(entries: Sequence[Entry]) -> int:
    return sum(entry.size for entry in entries)
