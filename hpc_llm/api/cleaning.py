"""What of runs takes room, and its removal, as far as it is asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_llm.api.find import logs_folder
from hpc_llm.api.handle import Named, runs_of
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.text.homes import from_home

if TYPE_CHECKING:
    from hpc_llm.records.run import RunPaths
    from hpc_llm.runs.room import Taken


@dataclass(frozen=True)
class Cleaned:
    """Something that takes room, and what became of it."""

    taken: Taken
    is_chosen: bool
    """It was asked for and may go: it is gone, or would be."""
    problem: str | None = None
    """Why it is still there although it was to be removed."""


def clean(
    runs: Named | Iterable[Named] | None = None,
    *,
    remove: Collection[str] = (),
    logs: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
) -> list[Cleaned]:
    """Say what the runs have kept, and remove of it the kinds `remove`: `checkpoints`, `model`, `code`, `caches`.

    Caches are prepared data and operators that jobs have compiled; of runs that are named, those that they have used. Code, which is
    nobody's own, is told of where no run is named, or where it is asked for. The newest checkpoint of a run stays, unless the run came to its end and its model is whole; the model stays where no
    checkpoint is left. Before anything of a training is removed, and with `dry_run` too, the checksums of the state that is left are read. What is of a run that is not over stays, and all of a run of which such a one needs something.

    Raises:
        RequestError: a name that no run has, or a kind that there is not; nothing was removed.
    """
    from hpc_llm.runs.room import CODE, KINDS, choose

    for kind in remove:
        if kind not in KINDS:
            raise RequestError(unknown_name("kind", kind, KINDS))
    named = _each_once(run.paths for run in runs_of(runs, logs, whole=True))
    folder = logs_folder(logs).absolute()
    kept = [one for one in _look(folder, named) if one.kind != CODE or runs is None or CODE in remove]
    found = [*kept, *_caches(folder, None if runs is None else named)]
    chosen = choose(found, remove)
    problems = _unproven(chosen, found) if dry_run else _take_away(chosen, folder, remove)
    return [Cleaned(one, one in chosen, problems.get(one.path)) for one in found]


def _look(folder: Path, named: Sequence[RunPaths]) -> list[Taken]:
    """What the runs have kept, by what is known of all runs that may need it."""
    from hpc_llm.records.run import is_run, iter_runs
    from hpc_llm.runs import status
    from hpc_llm.runs.room import taken_by
    from hpc_llm.runs.wanted import marks_of

    elsewhere = [mark.run for run in named for mark in marks_of(run) if is_run(mark.run.root)]
    known = _each_once([*named, *iter_runs(folder), *elsewhere])
    return taken_by(folder, named, dict(zip(known, status(known), strict=True)))


def _caches(folder: Path, named: Sequence[RunPaths] | None) -> list[Taken]:
    """What can be made again, by what is known of the runs of all folders that were noted to want it."""
    from hpc_llm.api.corpora import caches_folder
    from hpc_llm.records.run import iter_runs
    from hpc_llm.runs import status
    from hpc_llm.runs.caches import cached, is_seen, noted_places

    caches = caches_folder(folder, os.environ)
    noted = [logs for logs in noted_places(caches, from_home("~")) if is_seen(logs)]
    known = _each_once([*(named or ()), *(run for logs in (folder, *noted) for run in iter_runs(logs))])
    return cached(caches, from_home("~"), dict(zip(known, status(known), strict=True)), named)


def _each_once(runs: Iterable[RunPaths]) -> list[RunPaths]:
    """Those of several names once: one folder of runs has as many as there are links and working directories."""
    from hpc_llm.runs.wanted import same_place

    found: dict[Hashable, RunPaths] = {}
    for run in runs:
        found.setdefault(same_place(run.root), run)
    return list(found.values())


def _unproven(chosen: Sequence[Taken], found: Sequence[Taken]) -> dict[Path, str]:
    """What would stay as the state that is left does not hold what was written, and why: its checksums are read."""
    from hpc_llm.runs.proof import why_not_relied_on

    going = {one.path for one in chosen}
    runs = dict.fromkeys(one.run for one in chosen if one.run is not None)
    why = {run: why_not_relied_on(run, found, going) for run in runs}
    return {one.path: said for one in chosen if one.run is not None and (said := why[one.run]) is not None}


def _take_away(chosen: Sequence[Taken], folder: Path, kinds: Collection[str]) -> dict[Path, str]:
    """Remove it; what stayed, and why. Each run is looked at again when nobody else can change what it has kept."""
    from hpc_llm.runs.alone import alone_in
    from hpc_llm.runs.proof import why_not_relied_on
    from hpc_llm.runs.room import CACHES, choose, remove

    runs = list(dict.fromkeys(one.run for one in chosen if one.run is not None))
    problems: dict[Path, str] = {}
    with ExitStack() as stack:
        barred = {run: stack.enter_context(alone_in(run.root)) for run in runs}
        again = _look(folder, [run for run in runs if barred[run] is None]) if chosen else []
        again += _caches(folder, None) if any(one.kind == CACHES for one in chosen) else []
        still = {one.path for one in choose(again, kinds)}
        stays = {one.path: one.stays for one in again}
        going = {one.path for one in chosen} & still
        unproven = {run: why_not_relied_on(run, again, going) for run in runs if barred[run] is None}
        for one in chosen:
            if (why := barred.get(one.run) if one.run is not None else None) is None and one.path in still:
                why = (unproven.get(one.run) if one.run is not None else None) or remove(one)
            elif why is None and os.path.lexists(one.path):
                why = stays.get(one.path) or "by now it is all that is left"
            if why is not None:
                problems[one.path] = why
    return problems
