"""Compressed logs, read as far as they hold: what was cut off or damaged at its end is good before that."""

from __future__ import annotations

import zlib
from pathlib import Path

GZIP = b"\x1f\x8b"
LARGEST_WINDOW_LOG = 26
"""A decompressor keeps 2 to so many bytes at most: `xz -9` and `zstd --ultra -22` less `--long` need no more."""
_BLOCK = 1 << 18
_PIECE = 1 << 14
"""Bytes of a gzip file that are inflated at once: to 16 MiB at most."""
_OF_GZIP = 31
"""zlib's name for a stream with gzip's header and its largest window."""


class Xz:
    """An xz file, several streams one after the other; what needs a large dictionary is not read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._left = b""
        self._start()

    def _start(self) -> None:
        import lzma

        self._stream = lzma.LZMADecompressor(memlimit=(1 << LARGEST_WINDOW_LOG) + (16 << 20))

    def close(self) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Raises EOFError where the file ends in the middle."""
        while True:
            if self._stream.eof:
                self._left = (self._stream.unused_data or self._left).lstrip(b"\0")
                if not self._left and not self._fill():
                    return b""
                self._start()
            elif self._stream.needs_input and not self._left and not self._fill():
                raise EOFError(f"{self._file.name} ends in the middle")
            given, self._left = self._left, b""
            if text := self._stream.decompress(given, size):
                return text

    def _fill(self) -> bool:
        """Read on in the file, past the zeros that may stand between two streams."""
        self._left = self._file.read(_BLOCK)
        return bool(self._left)


class Gzip:
    """A gzip file, several members one after the other; what else stands behind one is passed over, as gzip does."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._left = b""
        self._is_broken = False
        self._stream = zlib.decompressobj(_OF_GZIP)

    def close(self) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Raises EOFError where the file ends in the middle, or is damaged there."""
        while True:
            if self._stream.eof and not self._begins_another():
                return b""
            if self._is_broken or (not self._left and not self._fill()):
                raise EOFError(f"{self._file.name} ends in the middle")
            if text := self._inflated(size):
                return text

    def _begins_another(self) -> bool:
        self._left = (self._stream.unused_data or self._left).lstrip(b"\0")
        while len(self._left) < len(GZIP) and self._fill():
            self._left = self._left.lstrip(b"\0")
        self._stream = zlib.decompressobj(_OF_GZIP) if self._left.startswith(GZIP) else self._stream
        return not self._stream.eof

    def _fill(self) -> bool:
        read = self._file.read(_PIECE)
        self._left += read
        return bool(read)

    def _inflated(self, size: int) -> bytes:
        before = self._stream.copy()
        try:
            text = self._stream.decompress(self._left, size)
        except zlib.error:
            return self._as_far_as_it_holds(before)
        self._left = self._stream.unconsumed_tail
        return text

    def _as_far_as_it_holds(self, stream: zlib._Decompress) -> bytes:
        """What stands before the damage, which a decompressor gives only to who asks byte by byte."""
        self._is_broken, text = True, b""
        for place in range(len(self._left)):
            try:
                text += stream.decompress(self._left[place : place + 1])
            except zlib.error:
                break
        return text
