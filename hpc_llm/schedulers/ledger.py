"""What this user has submitted, noted outside of all folders of runs, where nobody else can write.

Whatever lies in a folder of runs may have been made by somebody else: one that was unpacked or cloned belongs to whoever did
that, and its records say what its maker liked. So a note is left in the user's own state folder before a scheduler is asked,
one file a submission, whole or not at all as on any shared file system. It proves what the job's own comment does not, and that a
script is the one that was submitted. Where it is missing nothing is done on a record's word.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import notice
from hpc_llm.immutable import dataclass
from hpc_llm.records.files import is_private_folder, read_own, reason_of, replacing
from hpc_llm.records.run import is_run
from hpc_llm.schedulers.identity import Identity, is_uuid, output_of

if TYPE_CHECKING:
    from hpc_llm.schedulers.submission import Submission

SCHEMA = 1
_KEPT_S = 400 * 86400.0
"""So long a note is kept of which the runs are not taken back: no job lives longer, and no list of a site's."""
_LOOKED_AT = 64
"""Notes whose age is looked at in one go: the folder may lie far away."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """One submission."""

    uuid: str
    scheduler: str
    cluster: str | None
    """The scheduler's own name of the cluster that was to be asked."""
    array: str | None
    logs: str
    """The folder of the runs, absolute."""
    runs: tuple[str, ...]
    """The names of their folders; of an array in the order of its tasks."""
    digests: tuple[str, ...]
    """SHA-256 of each job.sh; one where all have the same."""

    def digest_of(self, run_dir: str) -> str | None:
        """The digest of the script of the run that was made there; None where none was."""
        at = self._place_of(run_dir)
        return None if at is None else self.digests[at if len(self.digests) > 1 else 0]

    def is_of(self, identity: Identity) -> bool:
        """Whether the record of a run says what was noted of it: its scheduler, its cluster and where it is and prints."""
        at = self._place_of(identity.run_dir or "")
        if at is None or identity.scheduler != self.scheduler:
            return False
        if identity.cluster and self.cluster and identity.cluster != self.cluster:
            return False
        return identity.output == output_of(identity.run_dir, self.array, at)

    def is_of_place(self, run_dir: str) -> bool:
        """Whether a run of it was made there."""
        return self._place_of(run_dir) is not None

    def _place_of(self, run_dir: str) -> int | None:
        folder, _, name = run_dir.rpartition("/")
        return self.runs.index(name) if folder == self.logs.rstrip("/") and name in self.runs else None


def note(submission: Submission, logs: Path, scripts: Mapping[str, str]) -> None:
    """Note a submission that is about to be made: run ids in the order of their tasks, each with the digest of its script.

    Where that cannot be done it is said, and the submission goes on: its job's comment proves whose it is, as long as it is kept.
    """
    digests = tuple(scripts.values())
    made = Note(
        uuid=submission.uuid,
        scheduler=submission.scheduler,
        cluster=submission.cluster,
        array=submission.array,
        logs=str(logs.absolute()),
        runs=tuple(scripts),
        digests=digests[:1] if len(set(digests)) == 1 else digests,
    )
    try:
        folder = _make_folder()
        with replacing(folder / _name(made.uuid), 0o600) as file:
            json.dump({"schema": SCHEMA, "noted_at": time.time(), **asdict(made)}, file)
    except OSError as error:
        notice(
            f"{notes_folder()} cannot be written ({reason_of(error)}): should this submission be cut short, the comment of its job "
            "alone proves that it is yours, and `hpc-llm reconcile` submits nothing of it anew"
        )
        return
    with contextlib.suppress(OSError):
        _prune(folder)


def note_of(uuid: str | None) -> Note | None:
    """What was noted of that submission; None where nothing was, or where others can have written it."""
    if uuid is None or not is_uuid(uuid):
        return None
    path = notes_folder() / _name(uuid)
    try:
        found = os.lstat(path)
        return _read(path, found.st_ino, found.st_mtime_ns) if is_private_folder(path.parent) else None
    except OSError:
        return None


def notes_of_place(run_dir: str) -> list[Note]:
    """What was noted of the submissions of which a run was made there."""
    return [one for one in _notes() if one.is_of_place(run_dir)]


def notes_in(logs: Path) -> list[Note]:
    """What was noted of the submissions whose runs were made in that folder."""
    return [one for one in _notes() if one.logs.rstrip("/") == str(logs.absolute())]


def _notes() -> list[Note]:
    try:
        found = [note_of(name.removesuffix(".json")) for name in sorted(os.listdir(notes_folder()))]
    except OSError:
        return []
    return [one for one in found if one is not None]


def is_noted(identity: Identity) -> bool:
    """Whether this user has noted the submission that the record of a run tells of."""
    found = note_of(identity.uuid)
    return found is not None and found.is_of(identity)


def is_noted_elsewhere(identity: Identity) -> bool:
    """Whether this user has noted that submission for runs in other places than the one whose record tells of it: somebody made that up."""
    found = note_of(identity.uuid)
    return found is not None and not found.is_of_place(identity.run_dir or "")


def vouches_for(submission: Submission, run_dirs: Sequence[str], digests: Sequence[str]) -> bool:
    """Whether exactly these scripts were submitted for the runs that were made there."""
    found = note_of(submission.uuid)
    return (
        found is not None
        and (found.scheduler, found.cluster, found.array)
        == (submission.scheduler, submission.cluster, submission.array)
        and all(found.digest_of(place) == digest for place, digest in zip(run_dirs, digests, strict=True))
    )


def forget(uuids: Iterable[str | None]) -> None:
    """Remove the notes of submissions of which no run is left."""
    for uuid in uuids:
        found = note_of(uuid)
        if found is not None and not any(is_run(Path(found.logs, run)) for run in found.runs):
            with contextlib.suppress(OSError):
                (notes_folder() / _name(found.uuid)).unlink(missing_ok=True)


def notes_folder() -> Path:
    """Where this user's submissions are noted."""
    from hpc_llm.site.profiles import user_state

    return user_state() / "submissions"


def _make_folder() -> Path:
    folder, home = notes_folder(), os.path.expanduser("~")
    if folder.is_relative_to(home) and not os.path.isdir(home):  # a home that is missing is not ours to make
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), home)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if not is_private_folder(folder):
        raise PermissionError(errno.EPERM, "others can write there", str(folder))
    return folder


def _name(uuid: str) -> str:
    return f"{uuid}.json"


@lru_cache(maxsize=64)
def _read(path: Path, inode: int, written_ns: int) -> Note | None:
    """The note in a file, which inode and time tell from what takes its place: the tasks of an array share one."""
    try:
        return _note(json.loads(read_own(path)))
    except (OSError, ValueError, RecursionError):
        return None


def _note(value: Any) -> Note | None:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return None
    own: dict[str, Any] = {name: value.get(name) for name in ("uuid", "scheduler", "cluster", "array", "logs")}
    runs, digests = (_texts(value.get(name)) for name in ("runs", "digests"))
    is_whole = all(isinstance(own[name], str) for name in ("uuid", "scheduler", "logs"))
    is_whole = is_whole and all(own[name] is None or isinstance(own[name], str) for name in ("cluster", "array"))
    if not is_whole or not runs or len(digests) not in (1, len(runs)):
        return None
    return Note(**own, runs=runs, digests=digests)


def _texts(values: object) -> tuple[str, ...]:
    """The texts of a list; none of what is no such list."""
    is_list = isinstance(values, list) and all(isinstance(one, str) for one in values)
    return tuple(values) if is_list and isinstance(values, list) else ()


def _prune(folder: Path) -> None:
    """Remove notes that are too old to be of use; a few are looked at each time."""
    names = os.listdir(folder)
    for name in random.sample(names, min(_LOOKED_AT, len(names))):
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(folder / name).st_mtime > _KEPT_S:
                (folder / name).unlink()
