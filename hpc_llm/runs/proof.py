"""Whether the state that a removal relies on holds what was written: its checksums are read before anything else of the run goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from hpc_llm.records import checkpoints, models
from hpc_llm.records.digests import digests_of
from hpc_llm.records.files import load_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.room import CHECKPOINTS, MODEL, Taken


def why_not_relied_on(run: RunPaths, found: Iterable[Taken], chosen: Collection[Path]) -> str | None:
    """Why what would be left of a run is no good state; None where it is one, or nothing of the training goes.

    It reads as many bytes as are left in the checkpoint from which the run goes on, or in the model where no checkpoint is.
    """
    states = [one for one in found if one.run == run and one.kind in (CHECKPOINTS, MODEL) and one.is_whole]
    left = [one for one in states if one.path not in chosen]
    if len(left) == len(states) or not left:
        return None
    kept, start = [one for one in left if one.kind == CHECKPOINTS], checkpoints.start_of(run.root)
    relied_on = [one for one in kept if start is not None and one.path == start.path] or kept[-1:] or left
    damaged = damaged_file(relied_on[0].path)
    return None if damaged is None else f"it may be the last good state: {damaged} does not hold what was written"


def damaged_file(folder: Path) -> Path | None:
    """The first file of a checkpoint or a model that is not as its checksums say; None where there are none, as of earlier versions."""
    name = next((one for one in (checkpoints.MANIFEST, models.MANIFEST) if (folder / one).is_file()), None)
    if name is None:
        return None
    try:
        digests = (load_json(folder / name) or {}).get("digests") or {}
    except (OSError, ValueError):
        return folder / name
    if not isinstance(digests, dict):
        return folder / name
    return next((folder / file for file in digests if not _holds(folder, file, digests[file])), None)


def _holds(folder: Path, name: str, digests: object) -> bool:
    try:
        return models.stays_within(name) and digests_of(folder / name) == digests
    except OSError:
        return False
