"""What an earlier report left in the folder: its own files go, all others stay and are named.

A report's record holds the checksum of each file that it wrote; one that was changed since, or replaced, is somebody's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpc_llm.errors import counted, notice
from hpc_llm.records.files import open_regular, read_json, write_json

RECORD = ".hpc-llm-report.json"
_SCHEMA = 1
_KINDS = frozenset((".png", ".svg", ".pdf", ".csv", ".md", ".tex", ".html"))
"""Files that a reader may take for the report's."""
_SHOWN = 4


def write_record(folder: Path) -> None:
    """Write down what lies in the folder, which holds nothing but a report's new files."""
    files = {path.name: _checksum(path) for path in sorted(folder.iterdir())}
    write_json(folder / RECORD, {"schema": _SCHEMA, "files": files})


def files_of_earlier(folder: Path) -> dict[str, str]:
    """The names and checksums of what the last report here wrote; nothing where it is not known."""
    record: Mapping[str, Any] = read_json(folder / RECORD) or {}
    files = record.get("files") if record.get("schema") == _SCHEMA else None
    is_known = isinstance(files, dict) and all(isinstance(one, str) for one in files.values())
    return {name: one for name, one in files.items() if name == os.path.basename(name)} if is_known and files else {}


def remove_earlier(folder: Path, earlier: Mapping[str, str], written: Collection[str]) -> None:
    """Remove what is as the earlier report wrote it and not of the new one; tell of what else could be taken for its."""
    for name, checksum in earlier.items():
        with suppress(OSError):
            if name not in written and _checksum(folder / name) == checksum:
                (folder / name).unlink()
    left = sorted(_others(folder, written))
    if left:
        more = f", and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        notice(
            f"{folder} holds {counted(len(left), 'file')} that this report did not write: {', '.join(left[:_SHOWN])}{more}. An empty "
            "folder (-o DIR) holds the report alone."
        )


def _others(folder: Path, written: Collection[str]) -> Iterator[str]:
    for entry in os.scandir(folder):
        if (
            entry.name not in written
            and os.path.splitext(entry.name)[1] in _KINDS
            and entry.is_file(follow_symlinks=False)
        ):
            yield entry.name


def _checksum(path: Path) -> str | None:
    """None of what is no file."""
    if path.is_symlink() or (file := open_regular(path)) is None:
        return None
    with file:
        return hashlib.sha256(file.read()).hexdigest()
