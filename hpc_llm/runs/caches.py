"""What can be made again and takes room: prepared data and compiled operators; which runs want them, in whatever folder those lie.

A run's own plan says which data it reads, and whether it compiles operators. That a folder of runs has some that want them is noted
beside what they want when the first is submitted: who cleans beside one folder of runs does not know of the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_llm.corpus.facts import read_facts
from hpc_llm.corpus.format import FACTS, MAKING, NAMES, is_abandoned
from hpc_llm.corpus.sources import read_source
from hpc_llm.errors import RequestError
from hpc_llm.records.compiled import compiled_folder, compiled_in
from hpc_llm.records.files import read_json, reason_of, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.room import CACHES, Taken, size_of
from hpc_llm.runs.statuses import RunStatus
from hpc_llm.runs.wanted import Places, is_a_name

_KEY = re.compile(r"[0-9a-f]{32}")
_HALF = re.compile(rf"{re.escape(MAKING)}.+|\.[0-9a-f]{{32}}\.old")
"""What is being written, or was being removed."""
_NOTES = ".readers-"
"""Begins the name of a user's folder of notes."""


def note_readers(experiments: Iterable[Mapping[str, Any]], logs: Path, home: Path) -> None:
    """Note beside prepared data and compiled operators that runs in the folder `logs` want them.

    Where nothing can be written nobody cleans either.
    """
    wanted: set[Path] = set()
    for experiment in experiments:
        corpus, cluster = corpus_of(experiment), _compiles_for(experiment)
        wanted |= {corpus} if corpus is not None and (corpus / FACTS).is_file() else set()
        wanted |= {compiled_folder(home, cluster)} if cluster is not None else set()
    for note in (_note(place, logs) for place in wanted):
        if not note.exists():
            with contextlib.suppress(OSError):
                write_json(note, {"schema": 1, "logs": str(logs.absolute())})


def _compiles_for(experiment: Mapping[str, Any]) -> str | None:
    """The cluster for which a run of DeepSpeed may compile operators; None of another run."""
    plan = experiment.get("plan")
    engine, cluster = (plan.get("engine"), plan.get("cluster")) if isinstance(plan, dict) else (None, None)
    is_deepspeed = isinstance(engine, dict) and engine.get("name") == "deepspeed"
    return cluster if is_deepspeed and isinstance(cluster, str) else None


def _note(place: Path, logs: Path) -> Path:
    whose = hashlib.sha256(str(logs.absolute()).encode()).hexdigest()[:12]
    return place.parent / f"{_NOTES}{os.geteuid()}" / f"{place.name}-{whose}.json"


def corpus_of(experiment: Mapping[str, Any]) -> Path | None:
    """The folder of the prepared data that a run reads."""
    return _place(experiment, "corpus")


def _place(experiment: Mapping[str, Any], name: str) -> Path | None:
    plan = experiment.get("plan")
    workload = plan.get("workload") if isinstance(plan, dict) else None
    found = workload.get(name) if isinstance(workload, dict) else None
    return Path(found) if isinstance(found, str) and is_a_name(found) else None


def noted_readers(caches: Path) -> dict[str, list[Path]]:
    """Name of the folder of prepared data -> folders with runs that were noted to read them."""
    found: dict[str, list[Path]] = {}
    for note in _notes(caches):
        if (logs := _logs_of(note)) is not None:
            found.setdefault(_data_of(note), []).append(logs)
    return found


def _notes(caches: Path) -> list[Path]:
    """All that can be listed; those in a folder that cannot count for all data, by `_blind`."""
    return sorted(caches.glob(f"{_NOTES}*/*.json"))


def _data_of(note: Path) -> str:
    return note.name.partition("-")[0]


def _logs_of(note: Path) -> Path | None:
    """The folder of runs that a note names; None where the note cannot be read."""
    try:
        logs = (read_json(note) or {}).get("logs")
    except OSError:
        return None
    return Path(logs) if isinstance(logs, str) and logs and is_a_name(logs) else None


def is_seen(logs: Path) -> bool:
    """Whether a folder of runs can be looked through from here."""
    return logs.is_absolute() and os.path.isdir(logs) and os.access(logs, os.R_OK | os.X_OK)


def _blind(caches: Path) -> str | None:
    """Why nobody here can say what others want of the data: the folder with their notes is shut."""
    if not caches.is_dir():
        return None
    shut = (one for one in sorted(caches.glob(f"{_NOTES}*")) if not os.access(one, os.R_OK | os.X_OK))
    first = next(shut, None)
    return None if first is None else f"others may read it: their notes in {first} cannot be looked at"


def _unread(caches: Path) -> dict[str, str]:
    """Name of the folder of prepared data -> why it stays, for each with a note that says nothing to us."""
    return {_data_of(note): f"the note {note} cannot be read" for note in _notes(caches) if _logs_of(note) is None}


def cached(
    caches: Path, home: Path, statuses: Mapping[RunPaths, RunStatus], only: Collection[RunPaths] | None
) -> list[Taken]:
    """What lies in a folder of prepared data, and what jobs have compiled; with `only` what these runs want alone.

    `statuses` are those of all runs that may want it.
    """
    readers: Places[RunPaths] = Places()
    for run in statuses:
        experiment = read_json(run.experiment) or {}
        for name in ("corpus", "caches"):  # what trains reads the one, what prepares writes into the other
            place = _place(experiment, name)
            if place is not None:
                readers.add(Path(place), run)
    found = [*_prepared(caches, statuses, readers), *_half_prepared(caches, statuses, readers)]
    found += _compiled(home, statuses)
    return [one for one in found if only is None or set(one.wanted_by) & {run.run_id for run in only}]


def _prepared(caches: Path, statuses: Mapping[RunPaths, RunStatus], readers: Places[RunPaths]) -> Iterator[Taken]:
    noted, unread, blind = noted_readers(caches), _unread(caches), _blind(caches)
    for folder in _folders(caches, _KEY):
        runs = readers.of(folder)
        stays = _somebody_elses(folder) or _going(runs, statuses) or _unseen(noted.get(folder.name, ()))
        stays = stays or unread.get(folder.name) or blind
        yield _taken(folder, runs, stays or _not_ours(folder) or _lost_source(folder))


def _half_prepared(caches: Path, statuses: Mapping[RunPaths, RunStatus], readers: Places[RunPaths]) -> Iterator[Taken]:
    """What a process is writing, or one that was killed has left."""
    runs = readers.of(caches)
    for folder in _folders(caches, _HALF):
        stays = _somebody_elses(folder) or _other_in(folder)
        if stays is None and folder.name.startswith(MAKING):
            fresh = None if is_abandoned(folder) else "it was written to within a week, and a process may be at it"
            stays = _going(runs, statuses) or fresh
        yield _taken(folder, [], stays)


def _compiled(home: Path, statuses: Mapping[RunPaths, RunStatus]) -> Iterator[Taken]:
    for cluster, folder in compiled_in(home):
        runs = [run for run, status in statuses.items() if status.cluster == cluster]
        noted = [logs for readers in noted_readers(folder.parent).values() for logs in readers]
        stays = _somebody_elses(folder) or _going(runs, statuses) or _unseen(noted)
        unread = next(iter(_unread(folder.parent).values()), None)
        yield _taken(folder, runs, stays or unread or _blind(folder.parent))


def noted_places(caches: Path, home: Path) -> list[Path]:
    """The folders of runs that were noted to want something of either kind."""
    places = [caches, *dict.fromkeys(folder.parent for _, folder in compiled_in(home))]
    return [logs for place in places for readers in noted_readers(place).values() for logs in readers]


def _taken(folder: Path, runs: Iterable[RunPaths], stays: str | None) -> Taken:
    return Taken(None, CACHES, folder, size_of(folder), stays, tuple(run.run_id for run in runs))


def _folders(place: Path, name: re.Pattern[str]) -> list[Path]:
    if not place.is_dir():
        return []
    entries = [entry for entry in os.scandir(place) if name.fullmatch(entry.name)]
    return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))


def _somebody_elses(folder: Path) -> str | None:
    found = folder.lstat()
    return None if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() else "it is somebody else's"


def _going(runs: Iterable[RunPaths], statuses: Mapping[RunPaths, RunStatus]) -> str | None:
    first = next((run for run in runs if statuses[run].outcome is None), None)
    return None if first is None else f"{first.run_id} wants it and is not over: {statuses[first].state}"


def _unseen(noted: Iterable[Path]) -> str | None:
    """Runs of which nobody here can say whether they are over."""
    lost = next((logs for logs in noted if not is_seen(logs) and not _is_gone(logs)), None)
    return None if lost is None else f"runs in {lost} want it, and that folder is not seen from here"


def _is_gone(logs: Path) -> bool:
    """Whether the folder is not there any more, by a look into the one that held it."""
    return is_seen(logs.parent) and not os.path.lexists(logs)


def _not_ours(folder: Path) -> str | None:
    """Why it is not removed where it is not what preparing data makes: other programs name folders by such sums too."""
    if (other := _other_in(folder)) is not None:
        return other
    return None if (folder / FACTS).is_file() else f"it has no {FACTS}, so nothing says that it holds prepared data"


def _other_in(folder: Path) -> str | None:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        return f"it cannot be looked into: {reason_of(error)}"
    others = [one.name for one in entries if one.name not in NAMES or not one.is_file(follow_symlinks=False)]
    return f"{min(others)} in it was not made by preparing data" if others else None


def _lost_source(folder: Path) -> str | None:
    """Why nobody could make them again."""
    try:
        sources = [read_source(text) for text in read_facts(folder).sources]
    except RequestError:  # nobody can read it either
        return None
    gone = next((one.place for one in sources if not one.is_of_the_hub and not os.path.exists(one.place)), None)
    return None if gone is None else f"what it was made of is gone: {gone}"
