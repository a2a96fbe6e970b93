"""What of runs takes room, and what of it may go: never the last good state, nothing of a run that is not over, or another's."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.records.checkpoints import Kept, kept_in, last_before, not_finite_from, not_whole_in
from hpc_llm.records.files import reason_of
from hpc_llm.records.models import is_whole_model
from hpc_llm.records.removed import note_removal
from hpc_llm.records.run import CARRIED, Outcome, RunPaths
from hpc_llm.runs.adoption import is_own
from hpc_llm.runs.statuses import RunStatus
from hpc_llm.runs.wanted import Places, identity_of, marks_of, needed_by

CHECKPOINTS, MODEL, CODE, CACHES = KINDS = ("checkpoints", "model", "code", "caches")
_HALF = re.compile(r"\.(?:step-\d+|model|[0-9a-f]{32}|torch_extensions|torchinductor|triton)\.(?:part|old)")
"""What a program that was killed has left of what it wrote."""
_ARCHIVE = re.compile(r"[0-9a-f]{12}-(\d+)\.(?:zip|sh)")


@dataclass(frozen=True)
class Taken:
    """Something that takes room."""

    run: RunPaths | None
    """None for what several runs share."""
    kind: str
    """One of KINDS."""
    path: Path
    size_bytes: int
    stays: str | None
    """Why it may not be removed; None where it may."""
    wanted_by: tuple[str, ...] = ()
    """The runs, over or not, that have used what several share, as far as they are known here."""
    is_whole: bool = True
    """False of a checkpoint that nothing can go on from, as far as names and sizes tell."""

    @property
    def run_id(self) -> str | None:
        return self.run.run_id if self.run is not None else None


def taken_by(logs: Path, named: Collection[RunPaths], statuses: Mapping[RunPaths, RunStatus]) -> list[Taken]:
    """What the runs `named` have kept, and the code beside them. `statuses` are those of all runs in `logs`, and of those
    elsewhere that have marked what they need."""
    going = {run: status for run, status in statuses.items() if status.outcome is None}
    needed = needed_by(going)
    for run in named:
        for mark in marks_of(run):  # it lies in the folder itself, by whatever way that is reached
            if mark.run in going:
                needed.add(run.root, mark.run)
    found = [one for run in named for one in _of_run(run, statuses[run], needed)]
    return found + list(_code(logs, [run for run in going if run.root.parent == logs]))


def _of_run(run: RunPaths, status: RunStatus, needed: Places[RunPaths]) -> Iterator[Taken]:
    barred = _why_not(run, status, needed)
    broken = not_whole_in(run.root)
    kept = [one for one in kept_in(run.root) if one.path not in broken]
    has_model = run.model.is_dir() and not run.model.is_symlink()
    doubt = next((f"{path.name} is not whole, so this may be the last good state" for path in broken), None)
    is_done = status.outcome is Outcome.COMPLETED and is_whole_model(run.model)
    needed_of = {} if is_done else _last_states(run, kept)
    for one in kept:
        last = (doubt if one is kept[-1] else None) or needed_of.get(one.step)
        yield Taken(run, CHECKPOINTS, one.path, one.size_bytes, barred or last)
    for path, why in broken.items():
        last = f"it is not whole ({why}): remove it by hand, if at all"
        yield Taken(run, CHECKPOINTS, path, size_of(path), barred or last, is_whole=False)
    if has_model:
        end = doubt or _why_model_is_last(kept, status)
        yield Taken(run, MODEL, run.model, size_of(run.model), barred or end)
    for path in _halves(run):
        yield Taken(run, CHECKPOINTS, path, size_of(path), barred, is_whole=False)


def _last_states(run: RunPaths, kept: Sequence[Kept]) -> dict[int, str]:
    """Steps of the checkpoints that stay of a run that is not done, and why."""
    if not kept:
        return {}
    lost = not_finite_from(run)
    before = last_before(kept, lost)
    start = before or kept[-1]
    why = {kept[-1].step: "it is the newest"}
    if before is not None:
        why[before.step] = f"it is the last one before step {lost}, whose loss is not a finite number"
    return {**why, start.step: f"{why[start.step]}, and the run goes on from it"}


def _why_model_is_last(kept: Sequence[Kept], status: RunStatus) -> str | None:
    if not kept:
        return "no checkpoint is left, so it is all that was trained"
    if status.step is not None and kept[-1].step < status.step:
        return f"the newest checkpoint is of step {kept[-1].step}, and the run came to step {status.step}"
    return None


def _why_not(run: RunPaths, status: RunStatus, needed: Places[RunPaths]) -> str | None:
    if run.checkpoints.is_symlink() or not is_own(run):
        return "it is somebody else's"
    if run.root.is_symlink():
        return f"it is reached by a link: name the run by its own folder, {os.path.realpath(run.root)}"
    if status.outcome is None:
        return f"the run is not over: {status.state}"
    if identity_of(run.root) is None:
        return "its folder cannot be looked at"
    if going := needed.of(run.root):
        return f"a run that is not over needs it: {going[0].root}"
    return next((why for mark in marks_of(run) if (why := mark.why_open)), None)


def _halves(run: RunPaths) -> list[Path]:
    entries: list[Path] = []
    for place in (run.checkpoints, run.root):
        with suppress(FileNotFoundError, NotADirectoryError):
            entries += [Path(entry.path) for entry in os.scandir(place)]
    return sorted(path for path in entries if _HALF.fullmatch(path.name) and path.is_dir() and not path.is_symlink())


def _code(logs: Path, going: Collection[RunPaths]) -> Iterator[Taken]:
    """The programs that travelled with runs; those that wait or go on read theirs."""
    folder = logs / CARRIED
    if not folder.is_dir() or folder.is_symlink():
        return
    stays = f"{next(iter(going)).run_id} is not over" if going else None
    for path in sorted(folder.iterdir()):
        match = _ARCHIVE.fullmatch(path.name)
        with suppress(FileNotFoundError):  # another one that cleans was first
            if match and int(match[1]) == os.geteuid() == (found := path.lstat()).st_uid:
                yield Taken(None, CODE, path, found.st_size, stays)


def size_of(folder: Path) -> int:
    """Bytes of the files within, links not followed; of a file its own; none of what another removes meanwhile."""
    if not folder.is_dir() or folder.is_symlink():
        return _bytes_of(folder)
    return sum(_bytes_of(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


def _bytes_of(path: Path | str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def choose(found: Iterable[Taken], kinds: Collection[str]) -> list[Taken]:
    """Those of the kinds that were asked for that may go; with the checkpoints gone, the model is what stays."""
    every = list(found)
    chosen = [one for one in every if one.kind in kinds and one.stays is None]
    whole = [one for one in every if one.kind == CHECKPOINTS and one.is_whole]
    left = {one.run for one in whole if one not in chosen}
    return [one for one in chosen if one.kind != MODEL or one.run in left]


def remove(taken: Taken) -> str | None:
    """Remove it, and write down of what a run has kept that it went; what went wrong, if anything."""
    if taken.run is not None and not _HALF.fullmatch(taken.path.name):
        note_removal(taken.run, taken.path)
    try:
        if taken.path.is_dir() and not taken.path.is_symlink():
            shutil.rmtree(_put_aside(taken.path))
        else:
            taken.path.unlink(missing_ok=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        return reason_of(error)
    return None


def _put_aside(folder: Path) -> Path:
    """The folder under a name by which nobody takes it for whole: who removes it may be killed in the midst of it."""
    if _HALF.fullmatch(folder.name):
        return folder
    aside = folder.with_name(f".{folder.name}.old")
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside)
    os.rename(folder, aside)
    return aside
