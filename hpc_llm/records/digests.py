"""Checksums by which a file of a checkpoint is known to hold what was written. Standard library only.

CRC-32 of each piece: it costs little beside the disk, several ranks can look at one file, and it finds what a disk, a copy or
a slip changes. It is no proof against somebody who means it: owners and rights are looked at for that.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from hpc_llm.records.files import new_file

PIECE = 1 << 26
"""Bytes of which there is one checksum."""
BESIDE = ".crc"
"""Ends the name of the file of checksums beside a file that was just written."""
_BLOCK = 1 << 20


class Digest:
    """The checksums of bytes that come bit by bit."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._sum = self._count = 0

    def add(self, data: bytes | memoryview) -> None:
        left = memoryview(data).cast("B")
        while len(left):
            part = left[: PIECE - self._count]
            self._sum = zlib.crc32(part, self._sum)
            self._count += len(part)
            left = left[len(part) :]
            if self._count == PIECE:
                self._done.append(self._sum)
                self._sum = self._count = 0

    @property
    def pieces(self) -> list[int]:
        return [*self._done, self._sum] if self._count else list(self._done)


class DigestedFile:
    """A new file whose checksums lie beside it once it is whole: of what was to be written, whatever the disk makes of it."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path, self._digest = path, Digest()
        self._file: IO[bytes] = path.open("xb")

    def __enter__(self) -> DigestedFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._file.close()
        if kind is None:
            with new_file(Path(self.name + BESIDE)) as beside:
                json.dump(self._digest.pieces, beside)

    def write(self, data: bytes | memoryview) -> int:
        self._digest.add(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def take_digests(folder: Path) -> dict[str, list[int]]:
    """The checksums of all files below `folder`, by their names in it; those that lay beside the files are gone then."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != BESIDE):
        beside = path.with_name(path.name + BESIDE)
        found[path.relative_to(folder).as_posix()] = _taken(beside) or digests_of(path)
    return found


def _taken(beside: Path) -> list[int] | None:
    try:
        pieces: list[int] = json.loads(beside.read_bytes())
    except (FileNotFoundError, ValueError):  # written by an engine that leaves none
        return None
    beside.unlink()
    return pieces


def digests_of(path: Path) -> list[int]:
    """The checksums of a file as it is."""
    return [digest_of_piece(path, number) for number in range(-(-path.stat().st_size // PIECE))]


def digest_of_piece(path: Path, number: int) -> int:
    """The checksum of the piece with that number, counted from 0."""
    found = 0
    with path.open("rb") as file:
        file.seek(number * PIECE)
        left = PIECE
        while left and (block := file.read(min(_BLOCK, left))):
            found = zlib.crc32(block, found)
            left -= len(block)
    return found


def share_of(digests: Mapping[str, Sequence[int]], part: int, parts: int) -> Iterator[tuple[str, int, int]]:
    """File, number and checksum of the pieces at which one of `parts` is to look: as many as the others, and neighbours.

    Where as many ranks read as have written, each looks at about what it will read.
    """
    every = [
        (name, number, digest)
        for name in sorted(digests, key=lambda name: (len(name), name))
        for number, digest in enumerate(digests[name])
    ]
    yield from every[len(every) * part // parts : len(every) * (part + 1) // parts]


def digest_of_value(value: Any) -> int:
    """The checksum of a JSON value, however it is laid out."""
    return zlib.crc32(json.dumps(value, sort_keys=True, allow_nan=False).encode())
