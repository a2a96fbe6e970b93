"""Which runs go on from what another has kept, in whatever folder they lie and however that was spelled.

A run's own plan says it, and a mark beside what it goes on from, made before it is submitted: who cleans one folder of runs
does not know of the others.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from hpc_llm.errors import RequestError, notice
from hpc_llm.records.checkpoints import run_of, start_of
from hpc_llm.records.files import read_json, reason_of
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.schedulers.claim import STALE_S, holder, is_claimed
from hpc_llm.schedulers.clock import file_age

Identity = tuple[int, int]
"""Device and inode: the same for all names of a folder."""


@dataclass(frozen=True)
class Mark:
    """That a run was submitted to go on from here."""

    path: Path
    run: RunPaths
    """The one that goes on."""

    @property
    def why_open(self) -> str | None:
        """Why nobody here can say yet whether that run is over; None where its folder tells, or is gone for good."""
        if is_run(self.run.root):
            return None
        if not self.run.root.parent.is_dir():
            return f"{self.run.root}, which goes on from it, is not seen from here; if that is over, remove {self.path}"
        age = file_age(self.path)
        is_recent = age is not None and abs(age) < STALE_S
        return f"{self.run.root} is being submitted and goes on from it" if is_recent else None


def marks_of(run: RunPaths) -> list[Mark]:
    """The runs that were submitted to go on from this one, over or not."""
    if run.wanted_by.is_symlink():
        return []
    records = [(path, read_json(path) or {}) for path in sorted(run.wanted_by.glob("*.json"))]
    return [Mark(path, RunPaths(Path(record["run"]))) for path, record in records if isinstance(record.get("run"), str)]


def goes_on_from(experiment: Mapping[str, Any]) -> Path | None:
    """The run or the checkpoint with which the plan of an experiment begins; None where it begins anew."""
    plan = experiment.get("plan")
    workload = plan.get("workload") if isinstance(plan, dict) else None
    resume = workload.get("resume") if isinstance(workload, dict) else None
    return Path(resume) if isinstance(resume, str) and is_a_name(resume) else None


def is_a_name(text: str) -> bool:
    """Whether a file can have that name: it holds no NUL and nothing that no file system encodes.

    >>> is_a_name("/data/x"), is_a_name(chr(0)), is_a_name(chr(0xD800))
    (True, False, False)
    """
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


T = TypeVar("T")


class Places(Generic[T]):
    """What is known of folders, under all names of each.

    One file system may be mounted twice, each time with a device number of its own: then neither number nor inode proves that
    two folders are one, nor that they are two. Two of one name may be the same then, and nobody acts on such a folder.
    """

    def __init__(self) -> None:
        self._sure: dict[Hashable, list[T]] = {}
        self._named: dict[str, list[tuple[int, T]]] = {}

    def add(self, folder: Path, what: T) -> None:
        """Know it of one more folder, be it there or not."""
        self._sure.setdefault(same_place(folder), []).append(what)
        found = identity_of(folder)
        if found is not None:
            for name in {folder.name, os.path.basename(os.path.realpath(folder))}:
                self._named.setdefault(name, []).append((found[0], what))

    def of(self, folder: Path) -> list[T]:
        """What is known of this folder, or may be: of one of its name on another device."""
        sure, found = self._sure.get(same_place(folder), []), identity_of(folder)
        if found is None:
            return sure
        named = self._named.get(os.path.basename(os.path.realpath(folder)), [])
        return [*sure, *(what for device, what in named if device != found[0] and what not in sure)]


def needed_by(runs: Iterable[RunPaths]) -> Places[RunPaths]:
    """The folders with which these runs begin, and all above them, each with the runs that do."""
    found: Places[RunPaths] = Places()
    for run in runs:
        place = goes_on_from(read_json(run.experiment) or {})
        for folder in () if place is None else _with_parents(place):
            found.add(folder, run)
    return found


def identity_of(folder: Path) -> Identity | None:
    """By what a folder is the same under each of its names; None where it cannot be looked at."""
    try:
        found = os.stat(folder)
    except (OSError, ValueError):  # a name that no file system has
        return None
    return found.st_dev, found.st_ino


def same_place(place: Path | str) -> Hashable:
    """What all names of one place have in common, be they links or mounts; of what is not there, its name without links."""
    return identity_of(Path(place)) or os.path.realpath(place)


def _with_parents(place: Path) -> Iterable[Path]:
    real = Path(os.path.realpath(place))
    return dict.fromkeys((real, *real.parents, place, *place.parents))


def source_of(place: Path) -> RunPaths | None:
    """The run in which a checkpoint lies, or which it is; None where there is no run."""
    return RunPaths(Path(os.path.realpath(place))) if is_run(place) else run_of(place)


@contextmanager
def reserved(submitted: Iterable[tuple[Mapping[str, Any], RunPaths, str]]) -> Iterator[None]:
    """Have what runs begin with stay until they are over: experiment, run and UUID of each that is submitted in the block.

    Those of which no folder is left when that fails need nothing.

    Raises:
        RequestError: what one begins with is gone, or is being removed.
    """
    marks: list[Mark] = []
    try:
        for experiment, run, uuid in submitted:
            place = goes_on_from(experiment)
            source = source_of(place) if place is not None else None
            if place is not None and source is not None:
                marks += _marked(source, run, uuid)
                _check_there(place, source)
        yield
    except BaseException:
        for mark in marks:
            if not os.path.lexists(mark.run.root):
                with contextlib.suppress(OSError):
                    mark.path.unlink()
        raise


def _marked(source: RunPaths, run: RunPaths, uuid: str) -> list[Mark]:
    """The mark that is left in `source`; none where nothing can be written there."""
    mark = Mark(source.wanted_by_run(run.run_id, uuid), RunPaths(run.root.absolute()))
    try:
        _refuse_foreign(source)
        source.write(mark.path, {"schema": 1, "run": str(mark.run.root), "uuid": uuid})
    except OSError as error:
        notice(
            f"{source.wanted_by} cannot be written ({reason_of(error)}): `hpc-llm clean` will not know that {run.run_id} goes on "
            f"from {source.run_id}, unless both lie in one folder"
        )
        return []
    return [mark]


def _refuse_foreign(source: RunPaths) -> None:
    """Raise OSError where the run is somebody else's, who could have us write wherever a link leads to, at any moment."""
    if source.root.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the run is somebody else's", str(source.root))


def _check_there(place: Path, source: RunPaths) -> None:
    """Looked at behind the mark: who removes looks at marks behind its claim, so one of both sees the other."""
    if is_claimed(source.root):
        raise RequestError(f"--resume {place}: {holder(source.root)} is at that run. Try again when it is done.")
    if start_of(place) is None and not source.search_tries():
        raise RequestError(f"--resume {place}: it holds no whole checkpoint any more.")
