"""The folder that a fetch fills: what it says of itself meanwhile, who fills it, and how files get to their places.

Files come into a hidden folder within and are moved to their places when all are whole; until then the record says that
the folder is not. So it may exist before, be a mount point or have a parent that is somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hpc_llm import __version__
from hpc_llm.errors import FetchError, RequestError, notice
from hpc_llm.fetching.listing import Entry, Listing, checked_entry
from hpc_llm.fetching.names import Wanted
from hpc_llm.fetching.transfer import UNFINISHED
from hpc_llm.fetching.whole import Whole, holds, stamp_of
from hpc_llm.records.fetched import STATE, command_of, is_whole, read_record, record_path
from hpc_llm.records.files import OTHERS_MAY_WRITE, make_own_folder, reason_of, write_json
from hpc_llm.records.shared import user_name
from hpc_llm.schedulers.claim import claimed, holder, refresh
from hpc_llm.text.homes import from_home

_OF_FILE_SYSTEMS = frozenset({STATE, "lost+found", ".snapshot", ".zfs"})
_LAST = ("config.json", "adapter_config.json")
"""By these a folder is known for a model: they are put there when all else is."""
_EDITED = 1 << 26
"""Bytes of a file that somebody may have edited: tokenizers have tens of millions."""
_COPIES = 100
_LOOK_S = 0.5
_SHORTEST_COMMIT = 7


class Folder:
    """The folder DIR of one fetch."""

    def __init__(
        self,
        path: Path,
        wanted: Wanted,
        source: str,
        revision: str | None,
        only: Sequence[str],
        tell: Callable[[str], None],
    ) -> None:
        self.path = from_home(path).absolute()
        self._state = self.path / STATE
        self._parts = self._state / "parts"
        self._placed: frozenset[str] = frozenset()
        self._whole = Whole(tell)
        self._wanted = wanted
        self._asked = {
            "asked": wanted.asked,
            "wanted": wanted.name,
            "part": wanted.folder,
            "from": source if source in ("hub", "modelscope") else str(from_home(source).absolute()),
            "revision": revision,
            "only": list(only),
        }

    def pinned(self) -> str | None:
        """The commit of the Hub of what is here, where only some of its files have to be fetched again."""
        record = self.record()
        return record.get("commit") if is_whole(record) and record.get("from") == "hub" else None

    def is_finished(self) -> bool:
        """Whether what is asked for is here already, with all its files.

        Raises:
            RequestError: it cannot be put here, because something else is, or others can have written what tells of it.
        """
        self._refuse_links()
        self._refuse_foreign()
        record = read_record(self.path)
        if record is None:
            self._refuse_strangers()
            return False
        self._refuse_others(record)
        entries = self.entries()
        if not is_whole(record) or len(self._in_place(entries)) < len(entries):
            return False
        with contextlib.suppress(OSError):  # then it is read again the next time
            self._remember(record)
        return True

    def record(self) -> dict[str, Any]:
        return read_record(self.path) or {}

    def entries(self) -> list[Entry]:
        """The files of the record; others may have been able to write it, so what no fetch writes is left out."""
        return [entry for entry, _ in self._stamped()]

    def _stamped(self) -> list[tuple[Entry, object]]:
        """The same, each with what it was known by when it was last seen to be whole."""
        files = self.record().get("files")
        pairs = [(_entry(one), one) for one in files] if isinstance(files, list) else []
        return [(entry, one.get("stamp")) for entry, one in pairs if entry is not None]

    def _remember(self, record: dict[str, Any]) -> None:
        """Have the record know its files as they lie here, each of which was seen to be whole."""
        files = [{**_said(entry), "stamp": stamp_of(self.path / entry.path)} for entry in self.entries()]
        if files != record.get("files"):
            write_json(record_path(self.path), {**record, "files": files})

    def _refuse_links(self) -> None:
        """Raise RequestError where what is ours within the folder leads elsewhere."""
        for folder in (self._state, self._parts):
            if folder.is_symlink():
                raise RequestError(f"--to {self.path}: {folder} is a link, which no fetch makes. Give another folder.")

    def _refuse_foreign(self) -> None:
        """Raise RequestError where what would be believed of the folder can be somebody else's word."""
        for place in (self.path, self._state, record_path(self.path), self._parts):
            try:
                found = place.stat()
            except OSError:
                continue
            is_open = place != self.path and found.st_mode & OTHERS_MAY_WRITE
            if found.st_uid not in (os.geteuid(), 0) or is_open:
                whose = "others may write it" if is_open else f"it belongs to {user_name(found.st_uid)}"
                raise RequestError(
                    f"--to {self.path}: {place}: {whose}, so nobody can say what was fetched here. Give a folder of your own; a run "
                    "takes a folder of somebody whom you trust as it is: --model or --data."
                )

    def _refuse_strangers(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RequestError(f"--to {self.path}: it is a file, a folder is needed.")
        try:
            there = sorted(set(os.listdir(self.path)) - _OF_FILE_SYSTEMS)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RequestError(f"--to {self.path}: {reason_of(error)}. Give a folder of your own.") from None
        if there:
            name = str(self._asked["asked"]).split("/")[-1]
            raise RequestError(
                f"--to {self.path}: it holds files that no fetch put there ({there[0]}). Give a folder that is empty or not "
                f"there yet, as {self.path / name}."
            )

    def _refuse_others(self, record: dict[str, Any]) -> None:
        """Raise RequestError where something else was, or is being, fetched into this folder."""
        if not record or (self._is_same(record) and (not is_whole(record) or self._is_revision(record))):
            return
        what = f"{record.get('name') or record.get('asked')}{_at(record)}"
        if is_whole(record):
            raise RequestError(f"--to {self.path}: it holds {what}. Give another folder, or remove that one first.")
        raise RequestError(
            f"--to {self.path}: a fetch of {what} into it is under way or was cut off. Give another folder; "
            f"`{command_of(record, self.path)}` goes on with that one."
        )

    def _is_same(self, record: dict[str, Any]) -> bool:
        """Whether a record is of what is asked for, by whichever of its names."""
        is_it = self._wanted.name in (record.get("wanted"), record.get("name"))
        return is_it and all(record.get(name) == self._asked[name] for name in ("part", "from", "only"))

    def _is_revision(self, record: dict[str, Any]) -> bool:
        """Whether the revision that is asked for, if any, is the one that is there."""
        asked = self._asked["revision"]
        commit = str(record.get("commit") or "")
        return asked in (None, record.get("revision"), commit) or (
            len(str(asked)) >= _SHORTEST_COMMIT and commit.startswith(str(asked))
        )

    def keeps_anything(self) -> bool:
        """Whether any byte lies here that the same command would go on with."""
        files = [*self._parts.glob("*"), *(self.path / entry.path for entry in self.entries())]
        return any(_size(file) for file in files)

    def bytes_here(self, chosen: Sequence[Entry]) -> int:
        """How much of the files an earlier try left here."""
        placed = self._in_place(chosen)
        return sum(
            entry.size if entry.key in placed else self._bytes_of(self.part(entry), entry.size) for entry in chosen
        )

    def _bytes_of(self, part: Path, most: int) -> int:
        for path in (part, part.with_name(part.name + UNFINISHED)):
            with contextlib.suppress(OSError):
                return min(path.stat().st_size, most)
        return 0

    def _in_place(self, chosen: Sequence[Entry]) -> frozenset[str]:
        """The keys of files that an earlier try had whole, and moved to their places."""
        known = {one.key: stamp for one, stamp in self._stamped()}
        there = (one for one in chosen if one.key in known)
        return frozenset(one.key for one in there if self._whole.is_it(self.path / one.path, one, known[one.key]))

    def part(self, entry: Entry) -> Path:
        """Where a file lies until all are whole."""
        return self._parts / entry.key

    def is_placed(self, entry: Entry) -> bool:
        """Whether a file was at its place when this fetch began."""
        return entry.key in self._placed

    @contextlib.contextmanager
    def alone(self, tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
        """Have the folder to oneself, after whoever fills it now; gives what is to be called now and then to keep it."""
        self._refuse_links()
        make_own_folder(self._parts)
        while True:
            with claimed(self._state) as is_ours:
                if is_ours:
                    tell("")
                    yield lambda: refresh(self._state)
                    return
            tell(f"another fetch is at work in {self.path} ({holder(self._state)}), its end is waited for")
            time.sleep(_LOOK_S)

    def begin(self, listing: Listing, chosen: Sequence[Entry]) -> None:
        """Say what is being fetched, and that the folder is not whole; throw away what belongs to another commit."""
        self._placed = self._in_place(chosen)
        self._drop_others(chosen)
        make_own_folder(self._parts)
        self._write(listing, chosen, complete=False)

    def _drop_others(self, chosen: Sequence[Entry]) -> None:
        keys = {entry.key for entry in chosen}
        for one in self.entries():
            if one.key not in keys:
                self._place(one).unlink(missing_ok=True)
        for part in self._parts.glob("*"):
            if part.name.removesuffix(UNFINISHED) not in keys:
                part.unlink(missing_ok=True)

    def finish(self, listing: Listing, chosen: Sequence[Entry]) -> None:
        """Move the files to their places, what makes a model of a folder last, and say that it is whole."""
        for entry in sorted(chosen, key=lambda entry: entry.path in _LAST):
            if self.part(entry).exists():
                place = self._place(entry)
                make_own_folder(place.parent)
                self._keep_aside(place, entry)
                os.replace(self.part(entry), place)
        _sync_folder(self.path)
        self._write(listing, chosen, complete=True)
        shutil.rmtree(self._parts, ignore_errors=True)

    def _keep_aside(self, place: Path, entry: Entry) -> None:
        """Keep what the user made of a fetched file, as another chat template. Of weights, and of what is not the user's, it is said alone."""
        try:
            found = place.lstat()
        except OSError:
            return
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if found.st_size == entry.size and holds(place, entry):
            return
        if found.st_size > _EDITED or not is_own:
            notice(f"{place} was no longer what was fetched: it is fetched anew.")
            return
        names = (f"{place.name}.changed{number or ''}" for number in range(_COPIES))
        free = next((name for name in names if not os.path.lexists(place.with_name(name))), None)
        if free is None:
            raise RequestError(
                f"--to {self.path}: {place.name}.changed and its like are all there. Remove what is not needed."
            )
        os.replace(place, place.with_name(free))
        notice(
            f"{place} was no longer what was fetched: it is fetched anew, and what was there is kept as {free} beside it."
        )

    def _place(self, entry: Entry) -> Path:
        """Where a file belongs. Raises RequestError where a link would lead it elsewhere."""
        place = self.path / entry.path
        for folder in place.parents:
            if folder == self.path:
                return place
            if folder.is_symlink():
                raise RequestError(
                    f"--to {self.path}: {folder} is a link, which no fetch makes. Remove it, or give another folder."
                )
        return place

    def _write(self, listing: Listing, chosen: Sequence[Entry], *, complete: bool) -> None:
        whole = {one.key for one in chosen} if complete else self._placed
        files = [
            {**_said(one), "stamp": stamp_of(self.path / one.path) if one.key in whole else None} for one in chosen
        ]
        about = {"schema": 1, "complete": complete, **self._asked, "kind": listing.kind, "name": listing.name}
        about |= {"commit": listing.commit or None}
        write_json(record_path(self.path), {**about, "hpc_llm": __version__, "written_at": time.time(), "files": files})


def _size(file: Path) -> int:
    """Of a file; 0 of one that is not there."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _entry(one: Any) -> Entry | None:
    """A file of a record; None for what is none."""
    try:
        return checked_entry(one["path"], one["size"], one["algorithm"], one["digest"], "a record")
    except (TypeError, KeyError, FetchError):
        return None


def _at(record: dict[str, Any]) -> str:
    commit = record.get("commit")
    return f" at {str(commit)[:12]}" if commit else ""


def _said(entry: Entry) -> dict[str, Any]:
    return {"path": entry.path, "size": entry.size, "algorithm": entry.algorithm, "digest": entry.digest}


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
