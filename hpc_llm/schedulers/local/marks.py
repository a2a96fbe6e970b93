"""Processes of ours on this machine, known by variables that they were started with and that end with them.

A process id is soon somebody else's, a folder can be removed and made anew, and a record may be lost with a full disk:
what a process was started for stands in its environment, whatever becomes of the files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.process import describe_process, end_all, process_ids

RUN_DIR, RUN_UUID, QUEUE_ID = "HPC_LLM_RUN_DIR", "HPC_LLM_RUN_UUID", "HPC_LLM_QUEUE_ID"
"""Of the script of a local run, and all that it starts: where the run was made, its submission, the number of its queue."""
QUEUE_OF = "HPC_LLM_QUEUE_OF"
"""Of the processes of a local queue: the UUIDs of the submissions that it holds."""
SWEEP = "HPC_LLM_SWEEP"
"""Of both: what all submissions of one request share."""
QUEUE_MARKS = (QUEUE_OF, SWEEP)
RUN_MARKS = (RUN_DIR, RUN_UUID, QUEUE_ID)
_NUMBER = "SUBMITIT_LOCAL_JOB_ID"
"""submitit's own, of the process that runs the scripts: the id of the process above it, which is the queue's number."""


@dataclass(frozen=True)
class Marked:
    """A process of this user that has marks."""

    marks: Mapping[str, str]
    process: Mapping[str, Any]
    """See `schedulers.process`."""
    is_script: bool = False
    """It is the shell that runs the script of a run, and not something that the script has started."""

    @property
    def pid(self) -> int:
        return int(self.process["pid"])

    @property
    def folder(self) -> Path:
        """Where its run was made; it may have been moved or removed since."""
        return Path(self.marks.get(RUN_DIR, "/"))

    @property
    def uuid(self) -> str:
        return self.marks.get(RUN_UUID, "")

    @property
    def queue_id(self) -> str:
        """The number of the queue that it is, or that has started it."""
        return self.marks.get(QUEUE_ID) or self.marks.get(_NUMBER) or str(self.pid)

    def is_queue_of(self, uuid: str) -> bool:
        return uuid in self.marks.get(QUEUE_OF, "").split(",")


@dataclass(frozen=True)
class Living:
    """What one look at the processes of this machine found."""

    found: tuple[Marked, ...] = ()

    def of_run(self, uuid: str | None, run_id: str) -> list[Marked]:
        """The processes of a run, its script first: all members of a submission share its UUID, each has a name."""
        own = [one for one in self.found if uuid and one.uuid == uuid and one.folder.name == run_id]
        return sorted(own, key=lambda one: not one.is_script)

    def run_folders(self) -> list[Path]:
        """Where the runs were made whose processes these are."""
        return sorted({one.folder for one in self.found if one.uuid}, key=lambda folder: (folder.name, folder))

    def queue_of(self, uuid: str | None) -> Marked | None:
        """A process of the queue that holds the submission."""
        return next((one for one in self.found if uuid and one.is_queue_of(uuid)), None)

    def beside(self, uuid: str, sweep: str | None) -> Marked | None:
        """A process of the same submission or request, a script rather than a queue."""
        request = [
            one
            for one in self.found
            if one.uuid == uuid or one.is_queue_of(uuid) or (sweep and one.marks.get(SWEEP) == sweep)
        ]
        return min(request, key=lambda one: (not one.is_script, not one.uuid), default=None)


def living() -> Living:
    """Look at the processes of this user; nothing is found where a system has no /proc, or hides them."""
    try:
        pids = process_ids()
    except OSError:
        return Living()
    return Living(tuple(one for one in map(_look_at, pids) if one is not None))


def end_run(uuid: str, run_id: str, grace_s: float = 10.0) -> list[Marked]:
    """End all processes of a run, wherever they have got to: SIGTERM, SIGKILL after `grace_s` seconds; returns what is left.

    This process stays, should it be one of them.
    """
    left: list[Marked] = []
    for _ in range(3):  # what is ended may have started something in its last moment
        left = [one for one in living().of_run(uuid, run_id) if one.pid != os.getpid()]
        if not left:
            break
        end_all([one.process for one in left], grace_s)
    return left


def _look_at(pid: int) -> Marked | None:
    """What marks the process has.

    psutil's `environ` stops at an empty text, as a program leaves it that writes over its environment to change its name in
    `ps`; the marks may stand behind it. And one search in the raw bytes is enough for nearly all processes.
    """
    folder = f"/proc/{pid}"
    with contextlib.suppress(OSError):  # it has ended, or is not to be looked into
        if os.stat(folder).st_uid != os.getuid():
            return None
        with open(f"{folder}/environ", "rb", buffering=0) as file:
            text = file.read()
        if b"HPC_LLM_" in text and (marks := _marks(text)):
            return Marked(marks, describe_process(pid), _is_script(pid, marks))
    return None


def _marks(text: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(item).partition("=") for item in text.split(b"\0"))
    found = {name: value for name, _, value in pairs if name in (*RUN_MARKS, *QUEUE_MARKS, _NUMBER)}
    return found if found.get(RUN_DIR, "").strip("/") or QUEUE_OF in found else {}


def _is_script(pid: int, marks: Mapping[str, str]) -> bool:
    """Whether it leads a session and was given the run's script: what the script starts has its marks as well."""
    if RUN_DIR not in marks or os.getsid(pid) != pid:
        return False
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return os.fsencode(RunPaths(Path(marks[RUN_DIR])).script) in words
