"""Files of records on a file system that others share: written whole or not at all, read within limits. Standard library only."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hpc_llm.json_text import DamagedRecordError, decoded

LARGEST_RECORD = 1 << 26
"""Bytes; a record that is larger was not written by us."""
_LONGEST_LINE = 1 << 20


def reason_of(error: OSError) -> str:
    """One clause on why a file cannot be read.

    >>> reason_of(PermissionError(13, "Permission denied"))
    'permission denied'
    """
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def make_shared_folder(folder: Path) -> None:
    """Make a folder as open as the one that holds it: where several people keep their runs together, all write there."""
    is_new = not folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.parent.stat().st_mode)
    if is_new and mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(mode)


def new_file(path: Path, mode: int = 0o666) -> IO[str]:
    """A file that was not there before, for writing text; the umask decides who else may read it."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    return open(handle, "w", encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with new_file(temporary) as file:
            json.dump(value, file, indent=1, ensure_ascii=False, allow_nan=False)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_json(path: Path | str) -> dict[str, Any] | None:
    """The object in `path`, or None when there is no such file.

    Raises:
        DamagedRecordError: it is not whole, no JSON object, too large, or no regular file, which might block for ever.
    """
    try:
        text = _read_regular(path).decode("utf-8")
        value = decoded(text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedRecordError(reason_of(error)) from None
    except UnicodeDecodeError:
        raise DamagedRecordError("it is not UTF-8") from None
    except RecursionError:
        raise DamagedRecordError("it is nested too deep") from None
    except ValueError as error:
        raise DamagedRecordError(str(error) if isinstance(error, DamagedRecordError) else "it is no JSON") from None
    if not isinstance(value, dict):
        raise DamagedRecordError("it is no JSON object")
    return value


def load_json_lines(path: Path | str) -> list[dict[str, Any]]:
    """The objects of a short JSONL file, without a half-written line.

    Raises:
        DamagedRecordError: it cannot be read at all.
    """
    try:
        lines = _read_regular(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DamagedRecordError(reason_of(error)) from None
    return [value for value in map(json_object, lines) if value is not None]


def json_object(line: bytes) -> dict[str, Any] | None:
    """The object of a JSONL line; None where it is damaged, or half of one."""
    try:
        value = decoded(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, or None when there is none yet or it is not whole."""
    try:
        return load_json(path)
    except DamagedRecordError:
        return None


def open_regular(path: Path) -> IO[bytes] | None:
    """The file, if it is one: a pipe or a device might block for ever. Raises OSError where it cannot be opened."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    return open(handle, "rb")


def _read_regular(path: Path | str) -> bytes:
    """All bytes of a record; without a file object, for ten thousand runs have many records."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedRecordError("it is no regular file")
        if found.st_size > LARGEST_RECORD:
            raise DamagedRecordError(f"it is larger than {LARGEST_RECORD >> 20} MiB")
        text = os.read(handle, found.st_size)
        while len(text) < found.st_size and (more := os.read(handle, found.st_size - len(text))):
            text += more
        return text
    finally:
        os.close(handle)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file; nothing where there is none, and without a half-written last line."""
    try:
        file = open_regular(path)
        if file is None:
            return
        with file:
            while line := file.readline(_LONGEST_LINE):
                value = json_object(line)
                if value is not None:
                    yield value
    except OSError:
        return
