"""One command at a time does what must be done once, on any shared file system: a file that only one can create."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hpc_llm.run import read_json
from hpc_llm.submit.process import describe_process, is_alive, is_on_this_host

_STALE_S = 600.0
"""A claim of a process on another host, which nobody here can see, counts so long."""


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether `folder` is this process's alone while the block runs; somebody who died holding it does not count."""
    path = folder / ".claim"
    is_ours = _create(path) or (_is_stale(path) and _remove(path) and _create(path))
    try:
        yield is_ours
    finally:
        if is_ours:
            _remove(path)


def _create(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except OSError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"schema": 1, **describe_process(os.getpid())}, file)
    return True


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False


def _is_stale(path: Path) -> bool:
    process = read_json(path)
    if process is not None and isinstance(process.get("pid"), int) and is_on_this_host(process):
        return not is_alive(process)
    with contextlib.suppress(OSError):  # half written, or of another host
        return abs(time.time() - path.stat().st_mtime) > _STALE_S
    return False
