"""A run as a program holds it: its folder, and what can be asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from hpc_llm.records.files import read_json, read_text
from hpc_llm.records.run import RunPaths

if TYPE_CHECKING:
    from hpc_llm.runs import Cancellation, RunStatus


@dataclass(frozen=True)
class Run:
    """One run that was submitted; everything about it is read from its folder when it is asked for."""

    folder: Path

    def __fspath__(self) -> str:
        """Its folder: whatever takes a path takes the run."""
        return str(self.folder)

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def job_id(self) -> str | None:
        """The scheduler's number; None while nobody knows it."""
        from hpc_llm.schedulers.runs import read_identity

        identity = read_identity(self.paths)
        return identity.job_id if identity else None

    @property
    def paths(self) -> RunPaths:
        """The files in its folder."""
        return RunPaths(self.folder)

    @property
    def script(self) -> str | None:
        """The batch script, exactly as submitted; None where it is gone."""
        return read_text(self.paths.script)

    @property
    def result(self) -> dict[str, Any] | None:
        """The measured figures, units in their names, None for what cannot be; None until the training program has written them."""
        from hpc_llm.runs.possible import possible

        record = read_json(self.paths.result)
        return None if record is None else possible(record)

    def status(self) -> RunStatus:
        """What became of it so far."""
        return status([self])[0]

    def wait(self) -> RunStatus:
        """Its status once it is over."""
        return wait([self])[0]

    def cancel(self) -> Cancellation:
        """End it, where it is proven to be this run."""
        from hpc_llm.runs import cancel

        return cancel([self.paths])[0]


Named = Union[Run, str, "os.PathLike[str]"]
"""A run, or what names one: its id, the start of that, its job id, or its folder."""


def runs_of(named: Named | Iterable[Named] | None, logs: str | os.PathLike[str] | None) -> list[Run]:
    """The runs that are meant, all of `logs` for None.

    Raises:
        RequestError: a name that no run has, or several have.
    """
    from hpc_llm.api.find import find_runs, logs_folder

    if named is None:
        return [Run(paths.root) for paths in find_runs(None, logs_folder(logs))]
    found: list[Run] = []
    for one in [named] if isinstance(named, (Run, str, os.PathLike)) else named:
        if isinstance(one, Run):
            found.append(one)
            continue
        text = one if isinstance(one, str) else os.path.join(os.fspath(one), "")
        found += [Run(paths.root) for paths in find_runs([text], logs_folder(logs))]
    return found


def status(
    runs: Named | Iterable[Named] | None = None, *, logs: str | os.PathLike[str] | None = None
) -> list[RunStatus]:
    """What became of the runs, in their order; of all in `logs` where none is named. The scheduler is asked once."""
    from hpc_llm.runs import status

    return status([run.paths for run in runs_of(runs, logs)])


def wait(
    runs: Named | Iterable[Named] | None = None,
    *,
    logs: str | os.PathLike[str] | None = None,
    on_update: Callable[[list[RunStatus]], None] | None = None,
) -> list[RunStatus]:
    """The statuses of the runs once all are over; `on_update` gets those of every look before."""
    from hpc_llm.runs import wait

    return wait([run.paths for run in runs_of(runs, logs)], on_update)


def submitted(paths: Sequence[RunPaths]) -> list[Run]:
    """The same runs as a program holds them."""
    return [Run(path.root) for path in paths]
