"""Which runs need what another has kept, in whatever folder they lie and however that was spelled: a checkpoint that they go on
from, a model that they answer with or begin with, files that they read.

A run's own plan says it, and a mark beside what it needs, made before it is submitted: who cleans one folder of runs does not
know of the others.
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
from hpc_llm.records.checkpoints import start_of
from hpc_llm.records.files import read_json, reason_of
from hpc_llm.records.removed import removed_from
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.schedulers.claim import STALE_S, holder, is_claimed
from hpc_llm.schedulers.clock import file_age

Identity = tuple[int, int]
"""Device and inode: the same for all names of a folder."""


@dataclass(frozen=True)
class Mark:
    """That a run was submitted which needs what lies here."""

    path: Path
    run: RunPaths
    """The one that needs it."""

    @property
    def why_open(self) -> str | None:
        """Why nobody here can say yet whether that run is over; None where its folder tells, or is gone for good."""
        if is_run(self.run.root):
            return None
        if not self.run.root.parent.is_dir():
            return f"{self.run.root}, which needs it, is not seen from here; if that is over, remove {self.path}"
        age = file_age(self.path)
        is_recent = age is not None and abs(age) < STALE_S
        return f"{self.run.root} is being submitted and needs it" if is_recent else None


def marks_of(run: RunPaths) -> list[Mark]:
    """The runs that were submitted and need something of this one, over or not."""
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


def places_of(experiment: Mapping[str, Any]) -> list[Path]:
    """All places that the plan of an experiment names: what it goes on from, its model, its data, and any other path.

    >>> plan = {"model": {"name": "/a/model"}, "workload": {"data": ["train=/b.jsonl", "gsm8k"], "resume": "/c"}}
    >>> [str(place) for place in places_of({"plan": plan})]
    ['/a/model', '/b.jsonl', '/c']
    """
    texts = (text for said in _texts(experiment.get("plan")) for text in (said, said.partition("=")[2]))
    return [Path(text) for text in dict.fromkeys(texts) if os.path.isabs(text) and is_a_name(text)]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


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
    """The runs of which these need something, each with the ones that do."""
    found: Places[RunPaths] = Places()
    sources: dict[Path, list[RunPaths]] = {}
    for run in runs:
        places = places_of(read_json(run.experiment) or {})
        for place in places:
            if place not in sources:
                sources[place] = sources_of(place)
        for root in dict.fromkeys(source.root for place in places for source in sources[place]):
            found.add(root, run)
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


def sources_of(place: Path) -> list[RunPaths]:
    """The runs in which a place lies, or which it is, and those that links in it lead to."""
    found = dict.fromkeys(run for one in (place, *_links_in(place)) for run in _around(one))
    return list(found)


def _around(place: Path) -> Iterator[RunPaths]:
    """A copy of a run's files may lie beside anybody's: what lies in one that was submitted counts, and a run itself."""
    real = Path(os.path.realpath(place))
    for folder in (real, *real.parents):
        if is_run(folder) and (folder == real or RunPaths(folder).job.is_file()):
            yield RunPaths(folder)


def _links_in(folder: Path) -> list[Path]:
    """The links directly in it: a model may be made of links to the files of another."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_symlink()]
    except OSError:
        return []


@contextmanager
def reserved(submitted: Iterable[tuple[Mapping[str, Any], RunPaths, str]]) -> Iterator[None]:
    """Have what runs need of others stay until they are over: experiment, run and UUID of each that is submitted in the block.

    Those of which no folder is left when that fails need nothing.

    Raises:
        RequestError: what one needs is gone, or is being removed.
    """
    marks: list[Mark] = []
    unmarked: dict[str, list[str]] = {}
    sources: dict[Path, list[RunPaths]] = {}
    try:
        for experiment, run, uuid in submitted:
            wanted = {}
            for place in places_of(experiment):
                if place not in sources:
                    sources[place] = sources_of(place)
                wanted[place] = [source for source in sources[place] if source.root != run.root]
            for source in dict.fromkeys(source for its in wanted.values() for source in its):
                try:
                    marks.append(_marked(source, run, uuid))
                except OSError as error:
                    unmarked.setdefault(f"{source.wanted_by} cannot be written ({reason_of(error)})", []).append(
                        run.run_id
                    )
            _check_there(experiment, wanted)
        _tell_unmarked(unmarked)
        yield
    except BaseException:
        for mark in marks:
            if not os.path.lexists(mark.run.root):
                with contextlib.suppress(OSError):
                    mark.path.unlink()
        raise


def _marked(source: RunPaths, run: RunPaths, uuid: str) -> Mark:
    """The mark that is left in `source`. Raises OSError where nothing can be written there."""
    mark = Mark(source.wanted_by_run(run.run_id, uuid), RunPaths(run.root.absolute()))
    _refuse_foreign(source)
    source.write(mark.path, {"schema": 1, "run": str(mark.run.root), "uuid": uuid})
    return mark


def _tell_unmarked(unmarked: Mapping[str, list[str]]) -> None:
    for why, runs in unmarked.items():
        which = f"{runs[0]} needs" if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more need"
        notice(f"{why}: `hpc-llm clean` will not know that {which} it, unless both lie in one folder")


def _refuse_foreign(source: RunPaths) -> None:
    """Raise OSError where the run is somebody else's, who could have us write wherever a link leads to, at any moment."""
    if source.root.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the run is somebody else's", str(source.root))


def _check_there(experiment: Mapping[str, Any], wanted: Mapping[Path, list[RunPaths]]) -> None:
    """Looked at behind the mark: who removes looks at marks behind its claim, so one of both sees the other."""
    resume = goes_on_from(experiment)
    for place, sources in wanted.items():
        said = f"--resume {place}" if place == resume else str(place)
        for source in sources:
            if is_claimed(source.root):
                raise RequestError(f"{said}: {holder(source.root)} is at that run. Try again when it is done.")
        gone = removed_from(place) if not os.path.exists(place) else None
        if place == resume and sources and start_of(place) is None and not sources[0].search_tries():
            raise RequestError(f"{said}: it holds no whole checkpoint any more{f', {gone}' if gone else ''}.")
        if gone:
            raise RequestError(f"{said} is not there any more: {gone}.")
