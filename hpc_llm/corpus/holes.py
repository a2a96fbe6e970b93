"""Holes of files: bytes that were never written, cost nothing on the disk, and take minutes to read as zeros. Standard library only."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from hpc_llm.errors import DataRequestError
from hpc_llm.records.files import open_plain

LARGEST = 1 << 28
"""Bytes of a hole that a file which is no text may have: what copies sparsely leaves out the zeros of an image or a table."""
_MOST = 4096
"""Holes of a file that are looked at."""
_PROOF = 4096
"""Bytes at the begin of a hole that are read: file systems are known that took for a hole what they had not written yet."""


def refuse_holes(path: str, *, is_text: bool) -> None:
    """Raise RequestError where a source has a hole that cannot be meant: any in a text, a huge one in another file."""
    try:
        with open_plain(path) as file:
            handle = file.fileno()
            holes = (one for one in _holes(handle) if (is_text or one[1] > LARGEST) and _is_empty(handle, *one))
            found = next(holes, None)
    except OSError:
        return  # what reads it says so
    if found is not None:
        raise DataRequestError(
            f"--data {path}: from byte {found[0]} on {found[1]} bytes were never written (a hole, which is read as zeros): the file "
            "was not copied or written whole. Bring it anew."
        )


def _holes(handle: int) -> Iterator[tuple[int, int]]:
    """Where each hole begins and how long it is, as the file system says; none where it does not know."""
    size, place = os.fstat(handle).st_size, 0
    for _ in range(_MOST if hasattr(os, "SEEK_HOLE") else 0):
        begin = os.lseek(handle, place, os.SEEK_HOLE) if place < size else size
        if begin >= size:
            return
        place = _next_data(handle, begin, size)
        yield begin, place - begin


def _next_data(handle: int, begin: int, size: int) -> int:
    """Where there are data again; the end of the file where there are none."""
    try:
        return os.lseek(handle, begin, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def _is_empty(handle: int, begin: int, length: int) -> bool:
    return not os.pread(handle, min(length, _PROOF), begin).strip(b"\0")
