"""Whether a file that lies there is the one that is listed: it is read for that once, and then known by its inode and times."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpc_llm.fetching.listing import Entry
from hpc_llm.records.files import OTHERS_MAY_WRITE

_CHUNK = 1 << 20
_LONG = 10**9
"""Bytes that take so long to read that a user should know of it."""


class Whole:
    """Reads no file twice that nobody has touched meanwhile."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._found: dict[tuple[Path, str], list[int]] = {}

    def is_it(self, path: Path, entry: Entry, known: object) -> bool:
        """Whether `path` is a file of ours that holds what `entry` lists; `known` is its stamp when that was last seen."""
        found = _own(path)
        if found is None or found.st_size != entry.size:
            return False
        if stamp_of(path) in (known, self._found.get((path, entry.key))) and not found.st_mode & OTHERS_MAY_WRITE:
            return True
        if entry.size > _LONG:
            self._tell(f"{path} is read to see whether it still is what is listed")
        if not holds(path, entry):
            return False
        self._found[path, entry.key] = stamp_of(path) or []
        return True


def stamp_of(path: Path) -> list[int] | None:
    """What changes with every change of a file: inode, and when it and its content were changed, in ns. None of what is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def holds(path: Path, entry: Entry, check: Callable[[], None] = lambda: None) -> bool:
    """Whether what `path` holds has the digest that is listed. `check` raises where one is to stop."""
    sum_: Any = entry.hasher()
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            while chunk := file.read(_CHUNK):
                check()
                sum_.update(chunk)
    except OSError:
        return False
    return str(sum_.hexdigest()) == entry.digest


def _own(path: Path) -> os.stat_result | None:
    """What the file system says of a regular file of this user's or root's; None of all else."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) else None
