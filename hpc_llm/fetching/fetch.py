"""One fetch from beginning to end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.errors import FetchError, RequestError
from hpc_llm.fetching.choice import choose
from hpc_llm.fetching.crew import all_of
from hpc_llm.fetching.folder import Folder
from hpc_llm.fetching.hub import Hub
from hpc_llm.fetching.listing import Entry, Listing, total_size
from hpc_llm.fetching.local import Local
from hpc_llm.fetching.modelscope import ModelScope
from hpc_llm.fetching.names import MODEL, is_name, read_name
from hpc_llm.fetching.patience import Patience
from hpc_llm.fetching.progress import Progress, Watch
from hpc_llm.fetching.room import check_room, sized
from hpc_llm.fetching.source import Source
from hpc_llm.fetching.transfer import Transfer
from hpc_llm.planning.checkpoint import read_checkpoint
from hpc_llm.records.files import NO_ROOM, reason_of
from hpc_llm.records.models import check_contents
from hpc_llm.records.weight_files import table_of
from hpc_llm.text.secrecy import refuse_secrets
from hpc_llm.text.shown import one_line

_KEEP_S = 60.0
_REVISION = re.compile(r"(?![./])(?!.{0,250}(?:\.\.|/\.|//))[^\s~^:?*\[\\\x00-\x1f\x7f]{1,250}")


@dataclass(frozen=True)
class Fetched:
    """What lies in a folder after a fetch."""

    name: str
    kind: str
    """`model` or `dataset`."""
    folder: Path
    commit: str | None
    """Of the source; None where it has none."""
    files: int
    size: int
    """Bytes of all files."""
    received: int
    """Bytes of them that this fetch itself received; 0 where all were here."""
    elapsed_s: float


class Fetch:
    """What one call is about, shared by its threads."""

    def __init__(self, watch: Watch, folder: Folder) -> None:
        self.watch = watch
        self.stop = threading.Event()
        self._reached = threading.Event()
        self._folder = folder

    def patience(self, who: str) -> Patience:
        return Patience(who, self.stop, self.watch.tell, self._reached, self._folder.keeps_anything)

    def source(self, word: str, env_file: str | None) -> Source:
        """What `--from` names."""
        if word == "hub":
            return Hub(env_file, self.patience)
        if word == "modelscope":
            return ModelScope(env_file, self.patience)
        if word.startswith(("http://", "https://")):
            raise RequestError(
                f"--from {word}: another server that speaks as the Hub does is given by HF_ENDPOINT={word}."
            )
        return Local(Path(word), self.patience(word).check, self.watch.tell)


def fetch(
    asked: str,
    to: Path,
    *,
    source: str,
    revision: str | None,
    only: Sequence[str],
    env_file: str | None,
    listener: Callable[[Progress], None] | None,
) -> Fetched:
    """Bring what `asked` names into the folder `to`."""
    refuse_secrets({"NAME": asked, "--from": source, "--only": list(only)}, "fetch")  # which the folder's record keeps
    wanted = read_name(asked)
    _check_revision(revision)
    watch = Watch(listener)
    folder = Folder(to, wanted, source, revision, only, watch.tell)
    if folder.is_finished():
        return _already(folder)
    job = Fetch(watch, folder)
    place = job.source(source, env_file)
    listing = place.find(wanted, revision or folder.pinned())
    _refuse_itself(place, folder)
    chosen = choose(listing, wanted.folder, only, lambda entry: _read(job, place, listing, entry))
    if isinstance(place, Local) and listing.kind == MODEL and not only:
        _refuse_damaged(place.folder, chosen)
    chosen = list(place.settle(chosen))
    check_room(folder.path, total_size(chosen) - folder.bytes_here(chosen))
    _knock(job, place, listing, chosen)
    return _bring(job, place, listing, chosen, folder)


def _check_revision(revision: str | None) -> None:
    """Raise RequestError for what git allows as no name; in an address it would mean something else."""
    if revision is not None and not _REVISION.fullmatch(revision):
        raise RequestError(f"--revision {one_line(revision)!r}: a branch, a tag or a commit is needed.")


def _already(folder: Folder) -> Fetched:
    record, entries = folder.record(), folder.entries()
    return Fetched(
        name=str(record.get("name")) if is_name(record.get("name")) else str(record.get("wanted")),
        kind=str(record.get("kind")),
        folder=folder.path,
        commit=record.get("commit"),
        files=len(entries),
        size=total_size(entries),
        received=0,
        elapsed_s=0.0,
    )


def _read(job: Fetch, place: Source, listing: Listing, entry: Entry) -> bytes:
    return job.patience(place.who).run(lambda: place.read(listing, entry))


def _refuse_itself(place: Source, folder: Folder) -> None:
    if isinstance(place, Local):
        here, there = folder.path.resolve(), place.folder.resolve()
        if here == there or there in here.parents or here in there.parents:
            raise RequestError(
                f"--to {folder.path}: it and {place.folder} lie one in the other. Give a folder elsewhere."
            )


def _refuse_damaged(folder: Path, chosen: Sequence[Entry]) -> None:
    """Raise RequestError where no run would take the model in the folder: nobody has said what its files should be.

    What is fetched from elsewhere is held to the digests that are listed there.
    """
    names = {entry.path for entry in chosen}
    if "config.json" in names:
        read_checkpoint(folder)
    for name in sorted(names):  # an adapter has no config.json
        table_of(folder / name)
    check_contents(folder, [folder / name for name in sorted(names)])


def _knock(job: Fetch, place: Source, listing: Listing, chosen: Sequence[Entry]) -> None:
    """Ask for the smallest file, so that who may not have it is told before anything was made."""
    smallest = min(chosen, key=lambda entry: (entry.size == 0, entry.size))
    with job.patience(place.who).run(lambda: place.open(listing, smallest, 0)):
        pass


def _bring(job: Fetch, place: Source, listing: Listing, chosen: Sequence[Entry], folder: Folder) -> Fetched:
    started = time.monotonic()
    try:
        with folder.alone(job.watch.tell) as keep:
            if folder.is_finished():  # by whom we waited for
                return _already(folder)
            folder.begin(listing, chosen)
            _fill(job, place, listing, chosen, folder, keep)
            folder.finish(listing, chosen)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _no_room(folder, chosen, error) from None
        raise
    return Fetched(
        name=listing.name,
        kind=listing.kind,
        folder=folder.path,
        commit=listing.commit or None,
        files=len(chosen),
        size=total_size(chosen),
        received=job.watch.state.received,
        elapsed_s=time.monotonic() - started,
    )


def _fill(
    job: Fetch, place: Source, listing: Listing, chosen: Sequence[Entry], folder: Folder, keep: Callable[[], None]
) -> None:
    """Have all files lie whole in the folder, several at once; `keep` shows others meanwhile that this fetch is at work."""
    job.watch.begin(len(chosen), total_size(chosen))
    ended = threading.Event()
    threading.Thread(target=_keep, args=(keep, ended), daemon=True).start()
    try:
        all_of(chosen, lambda entry: _one(job, place, listing, entry, folder), job.stop)
    finally:
        ended.set()


def _one(job: Fetch, place: Source, listing: Listing, entry: Entry, folder: Folder) -> None:
    if folder.is_placed(entry):
        job.watch.here(entry.size)
    else:
        patience = job.patience(place.who)
        Transfer(entry, folder.part(entry), lambda start: place.open(listing, entry, start), patience, job.watch).run()
    job.watch.file_done()


def _keep(keep: Callable[[], None], ended: threading.Event) -> None:
    while not ended.wait(_KEEP_S):
        keep()


def _no_room(folder: Folder, chosen: Sequence[Entry], error: OSError) -> FetchError:
    there, all_ = sized(folder.bytes_here(chosen)), sized(total_size(chosen))
    return FetchError(
        f"no more room for {folder.path} ({reason_of(error)}): {there} of {all_} are there and are "
        "kept. Make room, or look at your quota, and give the same command again: it goes on."
    )
