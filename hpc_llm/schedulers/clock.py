"""The time by the clock that stamps files: hosts that share a file system need not agree on the hour."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path


def file_age(path: Path) -> float | None:
    """How many seconds ago `path` was written, by the clock of its file system; None where it cannot be looked at.

    A file is made beside it, without a name where the file system can, and its stamp taken as now. Where none can be made,
    this host's clock has to do. A negative age is a stamp in the future.
    """
    try:
        written = path.stat().st_mtime
    except OSError:
        return None
    return _now_in(path.parent) - written


def _now_in(folder: Path) -> float:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()
