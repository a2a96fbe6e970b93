"""One command at a time changes what a run has kept: by a lock on its folder, and by a claim where others may not see locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpc_llm.schedulers.claim import claimed, holder, is_claimed


@contextmanager
def alone_in(folder: Path) -> Iterator[str | None]:
    """Why this process may not change what lies in a folder; None where it is alone there while the block runs.

    A lock needs no room on the disk, which may be full; some shared file systems have none, or one for each node.
    """
    with _locked(folder) as is_locked:
        if is_locked is False:
            yield "another command is at it"
            return
        with claimed(folder) as is_ours:
            if is_ours or (is_locked and not is_claimed(folder)):
                yield None
            else:
                yield f"{holder(folder)} is at it" if is_claimed(folder) else "nothing can be written in its folder"


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Whether the folder is locked for this process; None where nobody can lock it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
