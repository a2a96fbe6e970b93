"""A run as a program holds it: its folder, and what can be asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from hpc_llm.errors import RequestError, notice
from hpc_llm.records.files import read_text
from hpc_llm.records.run import RunPaths

if TYPE_CHECKING:
    from hpc_llm.api.printed import Printed
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
        """The measured figures, units in their names, None for what cannot be or contradicts others; None until the training program
        has written them."""
        from hpc_llm.runs.reading import read_records

        try:
            found = read_records(self.paths).result
        except OSError:  # the folder is gone
            return None
        return None if found is None else dict(found.values)

    def status(self) -> RunStatus:
        """What became of it so far."""
        return status([self])[0]

    def wait(self, *, timeout: float | None = None) -> RunStatus:
        """Its status once it is over, or after `timeout` seconds."""
        return wait([self], timeout=timeout)[0]

    def logs(self, *, follow: bool = False, timeout: float | None = None) -> Iterator[Printed]:
        """What it has printed; with `follow` also what it prints from now on, to its end or for `timeout` seconds."""
        from hpc_llm.api.printed import logs

        return logs(self, follow=follow, timeout=timeout)

    def cancel(self) -> Cancellation:
        """End it, where it is proven to be this run."""
        from hpc_llm.runs import cancel

        return cancel([self.paths])[0]


Named = Union[Run, str, "os.PathLike[str]", int]
"""A run, or what names one: its id, the first words of that, its job id (a number too), or its folder."""


def runs_of(
    named: Named | Iterable[Named] | None, logs: str | os.PathLike[str] | None, *, whole: bool = False
) -> list[Run]:
    """The runs that are meant, all of `logs` for None; `whole` where a name has to be whole.

    Raises:
        RequestError: a name that no run has, or several have.
    """
    from hpc_llm.api.find import find_runs, logs_folder, refuse_missing

    if named is None:
        refuse_missing(logs_folder(logs))
        return [Run(paths.root) for paths in find_runs(None, logs_folder(logs))]
    found: dict[Run, None] = {}
    for one in names_of(named):
        meant = (
            [one] if isinstance(one, Run) else [Run(p.root) for p in find_runs([one], logs_folder(logs), whole=whole)]
        )
        for run in meant:
            if run in found and len(meant) == 1:
                notice(f"{run.run_id} is named more than once, it counts once")
            found[run] = None
    return list(found)


def one_run(named: Named, logs: str | os.PathLike[str] | None) -> Run:
    """The one run that is meant.

    Raises:
        RequestError: a name that no run has, or several have.
    """
    from hpc_llm.api.find import find_run, logs_folder

    names = names_of(named)
    if len(names) != 1:
        raise RequestError(f"{len(names)} runs are named: give one.")
    return names[0] if isinstance(names[0], Run) else Run(find_run(names[0], logs_folder(logs)).root)


def names_of(named: Named | Iterable[Named]) -> list[Run | str]:
    """Runs as they are, everything else as the text that names it; a folder ends with a slash.

    Raises:
        RequestError: something that cannot name a run.
    """
    return [name_of(one) for one in each_of(named)]


def each_of(named: Named | Iterable[Named]) -> list[object]:
    """What was given, as a list also where it was one thing."""
    if isinstance(named, (Run, str, int, bytes, os.PathLike)) or not isinstance(named, Iterable):
        return [named]
    return list(named)


def name_of(one: object) -> Run | str:
    """A run, or the text that names it."""
    if isinstance(one, (Run, str)):
        return one
    if isinstance(one, int) and not isinstance(one, bool):
        return str(one)
    folder = os.fspath(one) if isinstance(one, os.PathLike) else None
    if not isinstance(folder, str):
        raise RequestError(f"{one!r} names no run: give a run, its name, its job id, or the path of its folder.")
    return os.path.join(folder, "")


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
    timeout: float | None = None,
    on_update: Callable[[list[RunStatus]], None] | None = None,
) -> list[RunStatus]:
    """The statuses of the runs once all are over; `on_update` gets those of every look before.

    After `timeout` seconds they come as they are then, some with `is_over` False; the runs go on.

    Raises:
        RequestError: a name that no run has, or a `timeout` that is no time.
    """
    from hpc_llm.runs import wait

    if timeout is not None and not timeout >= 0:
        raise RequestError(f"timeout is {timeout!r}: give seconds from 0 on, or None to wait to the end.")
    return wait([run.paths for run in runs_of(runs, logs)], on_update, timeout=timeout)


def submitted(paths: Sequence[RunPaths]) -> list[Run]:
    """The same runs as a program holds them."""
    return [Run(path.root) for path in paths]
