"""A run is started once by its submission: a mark that only one process can make, in the run's own folder.

A queue makes it right before it starts the script. Who submits the run anew makes it first, so that a queue which was
only slow, and wakes up later, finds it and starts nothing. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from uuid import uuid4

from hpc_llm.records.files import new_file, read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.process import can_be_seen, describe_process, is_alive


def take_start(run: RunPaths, uuid: str) -> bool:
    """Whether this process is the one that may start `run` for the submission `uuid`.

    Raises:
        OSError: that cannot be told, as where the disk is full; FileNotFoundError: the folder is gone.
    """
    return _take(run, uuid, is_revoked=False)


def revoke_start(run: RunPaths, uuid: str) -> bool:
    """Whether from now on nobody starts `run` for `uuid`: nobody had taken the start, or one that is over.

    Raises:
        OSError: as `take_start`.
    """
    if _take(run, uuid, is_revoked=True):
        return True
    maker = read_json(run.start_mark(uuid)) or {}
    is_known = isinstance(maker.get("pid"), int) and can_be_seen(maker)
    return maker.get("is_revoked") is True or (is_known and not is_alive(maker))


def _take(run: RunPaths, uuid: str, is_revoked: bool) -> bool:
    run.submitit.mkdir(exist_ok=True)
    mark = run.start_mark(uuid)
    mine = mark.with_name(f".{mark.name}.{uuid4()}")
    try:
        _write(mine, is_revoked)
        _link(mine, mark, is_revoked)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            mine.unlink(missing_ok=True)
    return True


def _write(path: Path, is_revoked: bool) -> None:
    with new_file(path) as file:
        json.dump({"schema": 1, **describe_process(os.getpid()), "is_revoked": is_revoked}, file)


def _link(mine: Path, mark: Path, is_revoked: bool) -> None:
    """Give the whole file its name: nobody reads half of it."""
    try:
        os.link(mine, mark)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        _write(mark, is_revoked)
