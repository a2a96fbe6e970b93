"""Runs of which this machine has processes although their folder is gone, or another run's by now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.runs.wanted import same_place
from hpc_llm.schedulers.local.marks import Marked, end_run, living
from hpc_llm.schedulers.runs import is_run_of


@dataclass(frozen=True)
class LocalOrphan:
    """A run that goes on, and where it was."""

    script: Marked
    """The process of its script, or one that is left of what that has started."""

    @property
    def job_id(self) -> str:
        """The number of the local queue that has started it."""
        return self.script.queue_id

    @property
    def folder(self) -> Path:
        return self.script.folder

    @property
    def run_id(self) -> str:
        return self.folder.name

    def is_in(self, logs: Path) -> bool:
        """Whether its run was in that folder of runs, by whatever name it is called."""
        return same_place(self.folder.parent) == same_place(logs)

    def end(self) -> list[Marked]:
        """End it and all that it has started; returns what is left."""
        return end_run(self.script.uuid, self.run_id)


def local_orphans(logs: Path | None = None) -> Iterator[LocalOrphan]:
    """Those of this user, whose runs were in `logs` or anywhere."""
    runs: dict[tuple[str, Path], Marked] = {}
    for one in sorted(living().found, key=lambda one: not one.is_script):
        if one.uuid:
            runs.setdefault((one.uuid, one.folder), one)
    for script in runs.values():
        orphan = LocalOrphan(script)
        if (logs is None or orphan.is_in(logs)) and not is_run_of(script.folder, script.uuid):
            yield orphan
