"""One command at a time does what must be done once, on any shared file system: a file that only one can create.

A submission is claimed from before its runs can be seen until its scheduler has answered, and again by whoever clears or
submits it later.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from hpc_llm.records.files import new_file, read_json
from hpc_llm.records.run import RunPaths, array_folder
from hpc_llm.schedulers.clock import file_age
from hpc_llm.schedulers.process import can_be_seen, describe_process, is_alive
from hpc_llm.text.shown import one_line

STALE_S = 1800.0
"""A claim of a process that nobody here can see, of another host or container, counts so long."""


def claim_folder(run: RunPaths, array: str | None) -> Path:
    """Where the submission of `run` is claimed: with the array that holds it, or with the run."""
    folder = run.root if array is None else array_folder(run.root.parent, array)
    return folder if folder.is_dir() else run.root


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Whether `folder` is this process's alone while the block runs; somebody who died holding it does not count."""
    is_ours = claim(folder)
    try:
        yield is_ours
    finally:
        if is_ours:
            release(folder)


def claim(folder: Path) -> bool:
    """Claim `folder`; False where somebody has."""
    return _create(_path(folder)) or (_is_stale(_path(folder)) and _take_over(_path(folder)))


def release(folder: Path) -> None:
    """Give up this process's claim; another's stays, even where the folder was made anew meanwhile."""
    if _is_mine(_path(folder)):
        _remove(_path(folder))


def refresh(folder: Path) -> None:
    """Show processes of other hosts that this one, which holds the claim, is still at it."""
    with contextlib.suppress(OSError):
        if _is_mine(_path(folder)):
            os.utime(_path(folder))


def holder(folder: Path) -> str:
    """Who has claimed the folder, as words of a sentence."""
    process = read_json(_path(folder)) or {}
    return one_line(f"process {process.get('pid', 'unknown')} on {process.get('host', 'an unknown host')}")


def is_claimed(folder: Path) -> bool:
    """Whether another process is at it."""
    path = _path(folder)
    return path.exists() and not _is_mine(path) and not _is_stale(path)


def _path(folder: Path) -> Path:
    return folder / ".claim"


def _create(path: Path) -> bool:
    """Make the file, whole or not at all: who reads it while it is written must not take it for damaged."""
    mine = path.with_name(f".claim.{uuid4()}")
    try:
        with new_file(mine) as file:
            json.dump({"schema": 1, **describe_process(os.getpid())}, file)
        os.link(mine, path)
    except FileExistsError:
        return False
    except OSError:
        _remove(mine)  # it may have been the last file for which there was room
        return _create_without_links(path)
    finally:
        _remove(mine)
    return True


def _create_without_links(path: Path) -> bool:
    try:
        file = new_file(path)
    except OSError:
        return False
    try:
        with file:
            json.dump({"schema": 1, **describe_process(os.getpid())}, file)
    except OSError:  # a full disk: half a claim would keep everybody away
        _remove(path)
        return False
    return True


def _take_over(path: Path) -> bool:
    """Put an own claim in the place of a stale one.

    Of two that found it stale the slower would remove the claim of the quicker. So only who holds a second file may
    remove, and looks once more.
    """
    guard = path.with_name(".claim.over")
    if not _create(guard):
        age = file_age(guard)
        if age is not None and abs(age) > STALE_S:  # its maker died in this very moment, long ago
            _remove(guard)
        return False
    try:
        return _is_stale(path) and _remove(path) and _create(path)
    finally:
        _remove(guard)


def _is_mine(path: Path) -> bool:
    process = read_json(path) or {}
    mine = describe_process(os.getpid())
    return all(process.get(name) == value for name, value in mine.items())


def _is_stale(path: Path) -> bool:
    process = read_json(path)
    if process is not None and isinstance(process.get("pid"), int) and can_be_seen(process):
        return not is_alive(process)
    age = file_age(path)
    return age is not None and abs(age) > STALE_S


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False
