"""Folders of exported runs: made whole in a room beside, then put in their place at once."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpc_llm.errors import RequestError, notice
from hpc_llm.exporting.finished import FinishedRun
from hpc_llm.exporting.tracker import REPLACED, UNCHANGED, WRITTEN, Sent
from hpc_llm.records.files import make_own_folder, read_json, write_json

MARK = "hpc-llm-export.json"
"""In a folder that we made: of which run it is, and of which content."""


@contextmanager
def room_in(folder: Path) -> Iterator[Path]:
    """A folder of our own in `folder`, which is made where it is missing; it is gone at the end."""
    make_own_folder(folder)
    room = Path(tempfile.mkdtemp(prefix=".hpc-llm-", dir=folder))
    try:
        yield room
    finally:
        shutil.rmtree(room, ignore_errors=True)


@contextmanager
def one_at_a_time(folder: Path | None) -> Iterator[bool]:
    """Lets one export after another write in the folder; yields whether it is alone there, which some file systems cannot tell."""
    handle = None
    try:
        if folder is not None:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        yield handle is not None and _wait_for(handle, folder)
    finally:
        if handle is not None:
            os.close(handle)


def _wait_for(handle: int, folder: Path | None) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        notice(f"{folder}: another export writes there, this one goes on when it is done")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def is_there(run: FinishedRun, place: Path, project: str) -> bool:
    """Whether `place` holds just this already.

    Raises:
        RequestError: something else lies there.
    """
    if not os.path.lexists(place):
        return False
    mark = read_json(place / MARK)
    if place.is_symlink() or mark is None or mark.get("id") != run.key:
        raise RequestError(
            f"{place} is there and is no earlier export of run {run.run_id}: give another folder with -o DIR, or move it away."
        )
    return mark.get("digest") == run.digest and mark.get("project") == project


def put(run: FinishedRun, made: Path, place: Path, project: str, room: Path) -> Sent:
    """Let the folder `made`, in the room beside, take the place of what was exported of this run before."""
    write_json(made / MARK, {"id": run.key, "run_id": run.run_id, "digest": run.digest, "project": project})
    was_there = os.path.lexists(place)
    old = room / f"old-{run.key}"
    if was_there:
        os.rename(place, old)
    try:
        os.rename(made, place)
    except OSError:
        if was_there:
            os.rename(old, place)
        raise
    return sent(run, place, REPLACED if was_there else WRITTEN)


def sent(run: FinishedRun, place: Path | str, state: str = UNCHANGED) -> Sent:
    """What is said of a run that lies there."""
    return Sent(run_id=run.run_id, key=run.key, place=str(place), state=state)
