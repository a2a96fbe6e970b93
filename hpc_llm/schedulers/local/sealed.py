"""Text that nobody can change any more, as an open file. Standard library only."""

from __future__ import annotations

import fcntl
import os
import tempfile
from typing import IO


def sealed_copy(text: bytes) -> int:
    """A descriptor from which `text` is read; the caller closes it. Raises OSError where there is no room for it.

    Its file has no name: it is one in memory, sealed, or where a system has none of these, one on disk.
    """
    with _without_name() as file:
        file.write(text)
        file.flush()
        file.seek(0)
        _seal(file.fileno())
        return os.dup(file.fileno())


def _without_name() -> IO[bytes]:
    try:
        return open(os.memfd_create("job.sh", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")
    except (AttributeError, OSError):  # not Linux, or a container that forbids it
        return tempfile.TemporaryFile()


def _seal(file: int) -> None:
    """Take from everybody the right to change the file, this process included."""
    try:
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    except (
        AttributeError,
        OSError,
    ):  # a file on disk has no seals; without a name, only this user's processes reach it
        return
