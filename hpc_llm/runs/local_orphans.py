"""Scripts of ours that this machine runs although the folder of their run is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.run import RunPaths
from hpc_llm.submit.process import describe_process, end_group
from hpc_llm.submit.queue import QUEUE_ID, RUN_DIR, RUN_UUID
from hpc_llm.submit.runs import is_run_of


@dataclass(frozen=True)
class LocalOrphan:
    """A script that goes on, and where its run was."""

    job_id: str
    """The number of the local queue that has started it."""
    folder: Path
    process: Mapping[str, Any]
    """The script's (see `submit.process`)."""

    def end(self) -> bool:
        """End it and all that it has started; False where it was over."""
        return end_group(self.process)


def local_orphans() -> Iterator[LocalOrphan]:
    """Those of this user. A process is known by the variables that the local queue gives to a script, and leads its group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _is_leader(int(entry.name)):
            marks = _marks(entry)
            folder = Path(marks.get(RUN_DIR) or "/")
            if folder.name and not is_run_of(folder, marks.get(RUN_UUID, "")):
                yield LocalOrphan(marks.get(QUEUE_ID, ""), folder, describe_process(int(entry.name)))


def _is_leader(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def _marks(process: Path) -> dict[str, str]:
    """The variables of `process` that are ours, if it is a job script of this user."""
    try:
        if process.stat().st_uid != os.getuid():
            return {}
        words = (process / "cmdline").read_bytes().split(b"\0")
        text = (process / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(item).partition("=") for item in text.split(b"\0"))
    found = {name: value for name, _, value in pairs if name in (RUN_DIR, RUN_UUID, QUEUE_ID)}
    script = os.fsencode(RunPaths(Path(found[RUN_DIR])).script) if RUN_DIR in found else None
    return found if script is not None and script in words else {}
