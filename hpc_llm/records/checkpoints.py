"""The checkpoints that a run keeps: which are whole, how far each was, what room they take. Standard library only.

checkpoints/step-N/   for going on with the training, whole or not there
model/                for use: what Hugging Face's libraries load (`records.models`)
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hpc_llm.immutable import dataclass
from hpc_llm.records.digests import digest_of_value
from hpc_llm.records.files import OTHERS_MAY_WRITE, load_json, read_json_lines
from hpc_llm.records.run import RunPaths, is_run
from hpc_llm.text.json_text import DamagedRecordError

MANIFEST = "checkpoint.json"
"""Of each checkpoint, written last: what it is of, and every file with its size and checksums."""
SCHEMA = 2
OWN_DIGEST = "own_digest"
"""Field of the manifest: the checksum of the others."""
_NAME = re.compile(r"step-([1-9]\d{0,11})")
_MOST = 10**18


@dataclass(frozen=True)
class Kept:
    """A checkpoint that is whole, as far as names and sizes tell."""

    path: Path
    step: int
    """Optimizer steps that were done."""
    size_bytes: int


def kept_in(folder: Path) -> list[Kept]:
    """The whole checkpoints of a run, oldest first."""
    return sorted(_kept_in(RunPaths(folder).checkpoints), key=lambda one: one.step)


def _kept_in(checkpoints: Path) -> Iterator[Kept]:
    try:
        names = [entry.name for entry in os.scandir(checkpoints) if _NAME.fullmatch(entry.name)]
    except OSError:
        return
    for name in names:
        found = read_checkpoint(checkpoints / name)
        if found is not None and name == f"step-{found.step}":
            yield found


def not_whole_in(folder: Path) -> dict[Path, str]:
    """What lies among the checkpoints of a run and is none that is whole, and why not: it may be all that is left of the newest.

    What a program that was killed has left has a hidden name, and is not among it.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(RunPaths(folder).checkpoints) if entry.name[:1] != ".")
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {RunPaths(folder).checkpoints: str(error.strerror)}
    places = [RunPaths(folder).checkpoints / name for name in names]
    return {place: why for place in places if (why := _why_not_whole(place)) is not None}


def _why_not_whole(place: Path) -> str | None:
    if place.is_symlink() or not place.is_dir() or not _NAME.fullmatch(place.name):
        return "it is no folder with a checkpoint's name"
    try:
        found = whole_checkpoint(place)
    except DamagedRecordError as error:
        return str(error)
    return None if place.name == f"step-{found.step}" else f"it holds step {found.step}"


def read_checkpoint(folder: Path) -> Kept | None:
    """The checkpoint in that folder; None where there is none, or it is not whole."""
    try:
        return whole_checkpoint(folder)
    except DamagedRecordError:
        return None


def whole_checkpoint(folder: Path) -> Kept:
    """The checkpoint in that folder. Raises DamagedRecordError where there is none, or it is not whole."""
    manifest = read_manifest(folder)
    sizes = manifest["files"]
    for name, size in sizes.items():
        if not has_size(folder / name, size):
            raise DamagedRecordError(f"{name} is missing, or has not its {size} bytes")
    return Kept(folder, manifest["step"], sum(sizes.values()))


def not_own(folder: Path) -> Path | None:
    """The first of a checkpoint's files or folders that somebody else can have written, or None: what goes on from it runs what
    they say.

    Raises OSError where it cannot be looked at.
    """
    for path in (folder, *sorted(folder.rglob("*"))):
        found = path.lstat()
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE or stat.S_ISLNK(found.st_mode):
            return path
    return None


def has_size(path: Path, size: int) -> bool:
    """Whether a regular file of so many bytes is there."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def read_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest of a checkpoint says. Raises DamagedRecordError where it cannot have been written so."""
    found = load_json(folder / MANIFEST)
    if found is None:
        raise DamagedRecordError(f"there is no {MANIFEST}")
    if found.get("schema") != SCHEMA:
        raise DamagedRecordError(f"it has schema {found.get('schema')!r}, {SCHEMA} is known here")
    for name in ("step", "files"):
        if name not in found:
            raise DamagedRecordError(f"it lacks {name}")
    for name, (may_be, is_one) in _FIELDS.items():
        if name in found and not is_one(found[name]):
            raise DamagedRecordError(f"{name} must be {may_be}")
    if OWN_DIGEST in found and found[OWN_DIGEST] != own_digest(found):
        raise DamagedRecordError("it was changed after it was written")
    return found


def own_digest(manifest: Mapping[str, Any]) -> int:
    """The checksum of a manifest's other fields."""
    return digest_of_value({name: value for name, value in manifest.items() if name != OWN_DIGEST})


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _is_step(value: Any) -> bool:
    return _is_count(value) and 0 < value < 10**12


def _are_files(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_within(name) and _is_count(size) for name, size in value.items())


def _are_digests(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_within(name) and isinstance(pieces, list) and all(map(_is_count, pieces)) for name, pieces in value.items()
    )


def _is_within(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _or_none(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_one(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "step": ("a number of steps, from 1 on", _is_step),
    "sequences": ("a whole number, not below 0", _is_count),
    "world_size": ("a number of ranks, from 1 on", _is_step),
    "trained_tokens": ("a whole number, not below 0", _or_none(_is_count)),
    "data": ("an object", _or_none(_is_object)),
    "best": ("an object", _or_none(_is_object)),
    "steering": ("an object", _is_object),
    "files": ("names in the folder and their sizes", _are_files),
    "digests": ("names in the folder and their checksums", _are_digests),
}
"""What a manifest may hold, in words and as a check."""


def run_of(checkpoint: Path) -> RunPaths | None:
    """The run that keeps a checkpoint, wherever links lead; None where it lies in none: a copy may lie beside anybody's files."""
    real = Path(os.path.realpath(checkpoint))
    run = RunPaths(real.parent.parent)
    return run if real.parent == run.checkpoints and is_run(run.root) and run.job.is_file() else None


def start_of(place: Path) -> Kept | None:
    """What a run goes on from: a checkpoint itself, or of a run the newest, which is one from before a loss that is not a finite number
    where there are such; None where there is none."""
    if (place / MANIFEST).exists() or not is_run(place):
        return read_checkpoint(place)
    kept = kept_in(place)
    if not kept:
        return None
    return last_before(kept, not_finite_from(RunPaths(place))) or kept[-1]


def not_finite_from(run: RunPaths) -> int | None:
    """The first step of a run whose loss is not a finite number, by the last try that made it; None where there is none."""
    found: int | None = None
    for one in (*run.earlier_tries(), run):
        for row in read_json_lines(one.steps):
            step = row.get("step")
            if not isinstance(step, int) or not _is_step(step) or "loss" not in row:
                continue
            if found is None or step <= found:
                has_none = row["loss"] is None and row.get("trained_tokens") != 0  # of no token there is no loss
                found = step if has_none else None
    return found


def last_sound(kept: Sequence[Kept], lost: int | None) -> Kept | None:
    """The newest checkpoint from which a step with a finite loss was made, where step `lost` was the first that had none: the weights
    behind the step before it have given that loss."""
    return next((one for one in reversed(kept) if lost is None or one.step < lost - 1), None)


def came_of_it(one: Kept, lost: int) -> str:
    """What a checkpoint that is not sound has to do with step `lost`, whose loss is not a finite number."""
    return "was kept behind that step" if one.step >= lost else "gave that loss"


def last_before(kept: Sequence[Kept], lost: int | None) -> Kept | None:
    """What is left of a run whose step `lost` was the first without a finite loss: the newest one that is sound, else the newest
    that is not behind that step. None where there is neither, or all losses are finite."""
    if lost is None:
        return None
    return last_sound(kept, lost) or next((one for one in reversed(kept) if one.step < lost), None)
