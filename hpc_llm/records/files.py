"""Files of records on a file system that others share: written whole or not at all, read within limits. Standard library only.

What is ours only we can write: a folder or file that the umask would leave open to a group is not. Where others may put
something, in folders that several people share or in their own, a file is opened once and looked at as it was opened: it is
a regular one, and no link by which somebody shows us a file of ours as theirs.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from hpc_llm.text.json_text import TOO_HEAVY, DamagedRecordError, decoded
from hpc_llm.text.json_weight import MOST, is_too_heavy

LARGEST_RECORD = 1 << 26
"""Bytes; a record that is larger was not written by us."""
_LONGEST_LINE = 1 << 20
_LINE_TAKES = 80
"""Bytes of memory, whatever it holds."""
_LONGEST_NAME = 200
"""Bytes of a file's name that a temporary one keeps: there is room for what stands behind it."""
_LARGEST_LINES = 1 << 31
"""Bytes of a JSONL file that are read: ten million steps are no run."""
_SHORT, _MOST_SHORT = 64, 200_000
"""Bytes of a line that is shorter than ours, and how many of these are read: each takes as long as a long one."""
NOT_THEIRS = "it is a link of somebody to what is not theirs"
LEADS_OUT = "it is a link that leads out of the run's folder, and is not followed"
HEART = "experiment.json"
"""The file by which the folder of a run is known as one."""
_DEEPEST = 4
"""Folders between the folder of a run and what lies in it, with that of a search's try and of its failures."""
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The file system, a quota or a limit of this shell takes no more."""


_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def reason_of(error: OSError) -> str:
    """One clause on why a file cannot be read.

    >>> reason_of(PermissionError(13, "Permission denied"))
    'permission denied'
    """
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def make_shared_folder(folder: Path) -> None:
    """Make a folder as open as the one that holds it: where several people keep their runs together, all write there.

    As in /tmp, what one of them puts there only they can rename or remove.
    """
    if folder.is_dir():
        return
    if not folder.parent.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_sticky(folder.parent, stat.S_IMODE(folder.parent.stat().st_mode))
    folder.mkdir(exist_ok=True)
    _make_sticky(folder, stat.S_IMODE(folder.parent.stat().st_mode))


def _make_sticky(folder: Path, mode: int) -> None:
    """Give a folder that was just made this mode where others may write in it."""
    if mode & OTHERS_MAY_WRITE:
        folder.chmod(mode | stat.S_ISVTX)


def make_own_folder(folder: Path) -> None:
    """Make a folder in which nobody else can write; the umask decides who may read it."""
    folder.mkdir(0o755, parents=True, exist_ok=True)


def is_private_folder(folder: Path) -> bool:
    """Whether it is this user's, no link, and nobody else can write in it. Raises OSError where it cannot be looked at."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OTHERS_MAY_WRITE


def new_file(path: Path, mode: int = 0o644) -> TextIOWrapper:
    """A file that was not there before, for writing text; nobody else can write it, the umask decides who may read it."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    return open(handle, "w", encoding="utf-8", newline="")


def append_to(path: Path) -> IO[str]:
    """A file for text that is added at its end, as `new_file` makes one; a link is none."""
    handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    return open(handle, "a", encoding="utf-8", newline="")


def append_within(folder: Path, *names: str) -> int:
    """A descriptor for adding to the file that `names` lead to in `folder`, which is made where it is missing.

    Neither `folder` nor one of `names` may be a link, and the file has no other name: who can rename the folder would have us
    write into a file of ours that lies elsewhere. Raises OSError where that is so.
    """
    place = os.open(folder, _FOLDER)
    try:
        for name in names[:-1]:
            above, place = place, os.open(name, _FOLDER, dir_fd=place)
            os.close(above)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return _plain(os.open(names[-1], flags, 0o644, dir_fd=place))
    finally:
        os.close(place)


def _plain(handle: int) -> int:
    """The same, which is a regular file with one name."""
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return handle
    os.close(handle)
    raise OSError(errno.EPERM, "it is no regular file, or has another name besides")


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` whole or not at all."""
    make_own_folder(path.parent)
    with replacing(path) as file:
        json.dump(value, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")


@contextmanager
def replacing(path: Path, mode: int = 0o644) -> Iterator[TextIOWrapper]:
    """A file for text, made as `new_file` does, which takes the place of `path` only when it is whole; of a link there, and never of what it leads to."""
    temporary = path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with new_file(temporary, mode) as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # which would speak of this name
            temporary.unlink()
        if isinstance(error, OSError) and (error.filename == os.fspath(temporary) or _lacks_room(error)):
            error.filename = os.fspath(path)  # the name that a user knows
        raise


def _lacks_room(error: OSError) -> bool:
    """Whether a file that was being written, of which the system does not say the name, had no room."""
    return error.errno in NO_ROOM and error.filename is None


@contextmanager
def replacing_output(path: Path) -> Iterator[TextIOWrapper]:
    """The same for a file that a user named: a terminal or a pipe, as `/dev/stdout`, is written to as it is.

    Raises:
        OSError: it cannot be written, or somebody else put such a thing there.
    """
    if not path.exists() or path.is_file() or path.is_dir():
        with replacing(path) as file:
            yield file
        return
    if path.lstat().st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, "it is somebody else's, and no file", str(path))
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        if _lacks_room(error):
            error.filename = os.fspath(path)
        raise


def write_output(path: Path, text: str) -> None:
    """Write a text to a file whole or not at all, and through no link."""
    with replacing(path) as file:
        file.write(text)


def load_json(path: Path | str) -> dict[str, Any] | None:
    """The object in `path`, or None when there is no such file.

    Raises:
        DamagedRecordError: it is not whole, no JSON object, too large, or no regular file, which might block for ever.
    """
    try:
        text = read_regular(path).decode("utf-8")
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
        content = read_regular(path)
        if _LINE_TAKES * content.count(b"\n") > MOST or is_too_heavy(content):
            raise DamagedRecordError(TOO_HEAVY)
        lines = content.splitlines()
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
    handle = _opened(path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    return open(handle, "rb")


def open_plain(path: Path | str) -> IO[bytes]:
    """A file that a user named, or one beside it, through whatever link; a pipe or a device might never come to its end.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    handle = os.open(path, _READING)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return open(handle, "rb")


def read_text(path: Path, most: int = LARGEST_RECORD) -> str | None:
    """So many bytes of a text as there are, at most `most`; None where there is no regular file that can be read."""
    try:
        file = open_regular(path)
        if file is None:
            return None
        with file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return None


def read_own(path: Path) -> bytes:
    """All bytes of a file that nobody but this user can have written.

    Raises:
        OSError: it cannot be read.
        DamagedRecordError: somebody else can have written it, or it is no regular file, or too large.
    """
    handle = os.open(path, _READING | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & OTHERS_MAY_WRITE:
            raise DamagedRecordError("others can have written it")
        return _all_of(handle, found)
    finally:
        os.close(handle)


def is_trusted_link(path: Path | str) -> bool:
    """Whether a link may be followed. Raises OSError where that cannot be told."""
    return why_not_followed(path) is None


def why_not_followed(path: Path | str) -> str | None:
    """Why a link may not be followed; None where it is this user's or root's, or leads to what is its maker's, and stays in its run.

    By any other link its maker would have us show, as if it were theirs, what only we may read; and in a folder that was cloned
    or unpacked all links are ours. Raises OSError where that cannot be told.
    """
    made, target = os.lstat(path).st_uid, os.stat(path).st_uid
    if made not in (os.geteuid(), 0, target):
        return NOT_THEIRS
    return LEADS_OUT if leads_out_of_run(path) else None


def leads_out_of_run(path: Path | str) -> bool:
    """Whether it lies in the folder of a run and leads out of that, itself or by a folder on the way to it."""
    folders = list(Path(os.path.abspath(path)).parents)[:_DEEPEST]
    within = [folder for folder in folders if os.path.isfile(folder / HEART)]
    if not within:
        return False
    real = Path(os.path.realpath(path))
    return not real.is_relative_to(os.path.realpath(within[-1]))


def _opened(path: Path | str) -> int:
    """The file as a descriptor; never waits for a pipe, and follows no link that is not to be trusted."""
    try:
        return os.open(path, _READING | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP or not os.path.islink(path):
            raise
    handle = os.open(path, _READING)
    try:
        if os.lstat(path).st_uid not in (os.geteuid(), 0, os.fstat(handle).st_uid):
            raise PermissionError(errno.EPERM, NOT_THEIRS, str(path))
        if leads_out_of_run(path):
            raise PermissionError(errno.EPERM, LEADS_OUT, str(path))
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_regular(path: Path | str) -> bytes:
    """All bytes of a record; without a file object, for ten thousand runs have many records."""
    handle = _opened(path)
    try:
        return _all_of(handle, os.fstat(handle))
    finally:
        os.close(handle)


def _all_of(handle: int, found: os.stat_result) -> bytes:
    """What an open file of that size holds."""
    if not stat.S_ISREG(found.st_mode):
        raise DamagedRecordError("it is no regular file")
    if found.st_size > LARGEST_RECORD:
        raise DamagedRecordError(f"it is larger than {LARGEST_RECORD >> 20} MiB")
    text = os.read(handle, found.st_size)
    while len(text) < found.st_size and (more := os.read(handle, found.st_size - len(text))):
        text += more
    return text


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file; nothing where there is none, and without a half-written last line.

    What is appended meanwhile is left out, and so is what follows a hole or very many short lines: nobody may keep a reader
    busy for ever.
    """
    try:
        file = open_regular(path)
        if file is None:
            return
        with file:
            left, short = min(os.fstat(file.fileno()).st_size, _LARGEST_LINES), 0
            while left > 0 and short < _MOST_SHORT and (line := file.readline(min(_LONGEST_LINE, left))):
                left, short = left - len(line), short + (len(line) < _SHORT)
                value = json_object(line)
                if value is not None:
                    yield value
                elif len(line) == _LONGEST_LINE and not line.strip(b"\0"):
                    return
    except OSError:
        return
