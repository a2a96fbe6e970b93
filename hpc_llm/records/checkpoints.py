"""The checkpoints that a run keeps: which are whole, how far each was, what room they take. Standard library only.

checkpoints/step-N/   for going on with the training, whole or not there
model/                for use: what Hugging Face's libraries load
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths, is_run

MANIFEST = "checkpoint.json"
"""Of each checkpoint, written last: what it is of, and every file with its size."""
SCHEMA = 2
_NAME = re.compile(r"step-([1-9]\d{0,11})")


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
        entries = [entry for entry in os.scandir(checkpoints) if _NAME.fullmatch(entry.name)]
    except OSError:
        return
    for entry in entries:
        found = read_checkpoint(Path(entry.path))
        if found is not None:
            yield found


def read_checkpoint(folder: Path) -> Kept | None:
    """The checkpoint in that folder; None where there is none, or it is not whole."""
    manifest = read_json(folder / MANIFEST)
    if manifest is None or manifest.get("schema") != SCHEMA or not isinstance(manifest.get("files"), Mapping):
        return None
    step, sizes = manifest.get("step"), manifest["files"]
    if not isinstance(step, int) or not all(_has_size(folder / name, size) for name, size in sizes.items()):
        return None
    return Kept(folder, step, sum(sizes.values()))


def _has_size(path: Path, size: Any) -> bool:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def start_of(place: Path) -> Kept | None:
    """What a run goes on from: a checkpoint itself, or the newest one of a run; None where there is neither."""
    if (place / MANIFEST).exists() or not is_run(place):
        return read_checkpoint(place)
    return next(reversed(kept_in(place)), None)
