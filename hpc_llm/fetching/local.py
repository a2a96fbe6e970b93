"""A folder as a source: a copy that somebody has, an entry of the Hub's cache, or a site's folder of models."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import cast

from hpc_llm.corpus.reading import leads_within
from hpc_llm.errors import FetchError, RequestError, did_you_mean
from hpc_llm.fetching.listing import Entry, Listing, is_safe_path, total_size
from hpc_llm.fetching.names import MODEL, Wanted, is_name
from hpc_llm.fetching.source import Source, Stream
from hpc_llm.records.fetched import STATE, read_record, refuse_unfinished
from hpc_llm.records.files import open_regular, read_text, reason_of
from hpc_llm.text.homes import from_home

_CHUNK = 1 << 20
_LONG = 10**9
"""Bytes that take so long to read that a user should know of it."""
_POINTER = b"version https://git-lfs"
_BLOBS = {"sha256": re.compile(r"[0-9a-f]{64}"), "git-sha1": re.compile(r"[0-9a-f]{40}")}
"""What the Hub's cache calls its files."""


class _FileStream(Stream):
    def some(self, most: int) -> bytes:
        try:
            return super().some(most)
        except OSError as error:
            raise FetchError(f"{getattr(self._file, 'name', 'a file')} cannot be read: {reason_of(error)}.") from None


class Local(Source):
    """What lies in a folder here. What it should be is read off it once, and the copy is held to that."""

    word = "path"

    def __init__(self, path: Path, check: Callable[[], None], tell: Callable[[str], None]) -> None:
        self._path = from_home(path).absolute()
        self._check = check
        self._tell = tell
        self.folder = self._path
        self.who = str(path)

    def find(self, wanted: Wanted, revision: str | None) -> Listing:
        if revision is not None:
            raise RequestError(
                f"--revision {revision}: a folder holds what it holds. Leave it out with --from {self._path}."
            )
        self.folder = folder = _folder_of(self._path, wanted)
        refuse_unfinished(folder)
        record = read_record(folder) or {}
        known = {(one.get("path"), one.get("size")): one for one in record.get("files") or () if isinstance(one, dict)}
        entries = tuple(self._entry(folder, path, known) for path in sorted(_files(folder)))
        name, commit = record.get("name"), str(record.get("commit") or "")
        is_commit = _BLOBS["git-sha1"].fullmatch(commit) is not None
        return Listing(wanted.kind, str(name) if is_name(name) else wanted.name, commit if is_commit else "", entries)

    def open(self, listing: Listing, entry: Entry, start: int) -> Stream:
        path = self.folder / entry.path
        file = _opened(path)
        file.seek(start)
        return _FileStream(file, start)

    def _entry(self, folder: Path, path: str, known: dict[tuple[object, object], dict[str, object]]) -> Entry:
        """A file and the digest that it should have: as it was fetched, as the Hub's cache names it, else as it turns out to be."""
        place = folder / path
        found = _stat(place)
        if not found.st_mode & stat.S_IROTH and not leads_within(place, folder):
            raise RequestError(
                f"{place} is a link that leads out of {folder}, to what not everybody may read, and is not followed. Put a copy there."
            )
        size = found.st_size
        kept = known.get((path, size), {})
        if kept.get("algorithm") in ("sha256", "git-sha1"):
            return Entry(path, size, str(kept["algorithm"]), str(kept.get("digest")))
        blob = place.resolve().name if place.is_symlink() else ""
        for algorithm, shape in _BLOBS.items():
            if shape.fullmatch(blob):
                return Entry(path, size, algorithm, blob)
        return Entry(path, size, "sha256", "")

    def settle(self, chosen: Sequence[Entry]) -> Sequence[Entry]:
        if total_size(chosen) > _LONG:
            self._tell(f"{self.folder} is read to know its copy by")
        return [one if one.digest else replace(one, digest=self._digest(self.folder / one.path)) for one in chosen]

    def _digest(self, path: Path) -> str:
        sum_ = Entry("", 0, "sha256", "").hasher()
        with _FileStream(_opened(path), 0) as stream:
            chunk = stream.some(_CHUNK)
            if chunk.startswith(_POINTER):
                raise RequestError(
                    f"{path} is a pointer of Git LFS and not the file: run `git lfs pull` in {path.parent}."
                )
            while chunk:
                self._check()
                sum_.update(chunk)
                chunk = stream.some(_CHUNK)
        return str(sum_.hexdigest())


def _folder_of(path: Path, wanted: Wanted) -> Path:
    """The folder that holds `wanted`: `path` itself, its newest snapshot in the Hub's cache, or what is called so in it."""
    if not path.is_dir():
        near = did_you_mean(path.name, ("hub", "modelscope")) or "."
        raise RequestError(
            f"--from {path}: there is no such folder{near} Valid: hub, modelscope, or the path of a folder."
        )
    cached = f"{wanted.kind}s--{wanted.name.replace('/', '--')}"
    for folder in (path, path / cached, path / "hub" / cached, path / wanted.name, path / wanted.name.split("/")[-1]):
        snapshot = snapshot_in(folder)
        if snapshot is not None:
            return snapshot
        if folder != path and folder.is_dir():
            return folder
        if wanted.kind == MODEL and any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            return folder
    if wanted.kind == MODEL:
        hint = "" if wanted.is_sure else f" A data set is called datasets/{wanted.name}."
        raise RequestError(
            f"--from {path}: it is no model (it holds no config.json), and holds none called {wanted.name}.{hint}"
        )
    return path


def snapshot_in(entry: Path) -> Path | None:
    """The folder of an entry of the Hub's cache that holds its model: that of `main`, else the newest; None where it is none."""
    try:
        snapshots = sorted(entry.glob("snapshots/*/"), key=lambda one: one.stat().st_mtime)
    except OSError:
        return None
    main = (read_text(entry / "refs" / "main", 100) or "").strip()
    return next((one for one in snapshots if one.name == main), snapshots[-1] if snapshots else None)


def _files(folder: Path) -> Iterator[str]:
    """The files below a folder; what is hidden is git's or ours."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = (Path(place) / name).relative_to(folder).as_posix()
            if not name.startswith(".") and is_safe_path(path) and STATE not in path:
                yield path


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {reason_of(error)}. The folder is not whole.") from None


def _opened(path: Path) -> BufferedReader:
    try:
        file = open_regular(path)
    except OSError as error:
        raise FetchError(f"{path} cannot be read: {reason_of(error)}.") from None
    if file is None:
        raise RequestError(f"{path} is no regular file: only folders of files are copied.")
    return cast(BufferedReader, file)
