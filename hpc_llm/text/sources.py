"""Reading logs: plain, compressed, from a pipe; always as blocks of cleaned text that end at the end of a line."""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol, cast

from hpc_llm.errors import RequestError, notice, pass_over
from hpc_llm.text.inflate import GZIP, LARGEST_WINDOW_LOG, Gzip, Xz


class Readable(Protocol):
    """What a log is read from."""

    def read(self, size: int, /) -> bytes: ...


BLOCK = 1 << 18
"""Bytes read at once."""
LONGEST_LINE = 1 << 22
"""A line longer than this is cut: progress bars without an end must not fill the memory."""
LARGEST_DOCUMENT = 1 << 25
"""Bytes of a document, such as a notebook, that is read whole."""
MOST_INFLATED, MOST_TIMES = 1 << 28, 200
"""Of a compressed file more than so many bytes are read only as long as they are at most so many times its size: logs
shrink to a tenth or a hundredth, and only what was made to fill a machine to a thousandth."""
REPEATED_AFTER = 1 << 23
"""Of a compressed file so many bytes are read whatever they are; behind them, lines that only repeat are read once: such a
file costs its author nothing, and its reader minutes."""
LONGEST_PERIOD = 1 << 16
"""Bytes after which lines may begin again."""
_TRIES = 64
SAMPLE = 1 << 15
HEAD = 1 << 21
"""Bytes at the beginning of a log that are searched for the programs that wrote it."""

HOLE = b"\0\0"
"""Bytes that were lost, however many: a file that was cut while a program wrote on, or a machine that fell before they were
on the disk. What stands before and behind them are parts of two lines. A single NUL is one of text in UTF-16."""
_HOLE = re.compile(rb"\0{2,}")
IN_A_LINE = rb"(?<=[^\n\r\0])\0{2,}(?=[^\n\r\0])"
"""A hole with text of lines on both sides."""
_IN_A_LINE = re.compile(IN_A_LINE)

_XZ, _ZSTD, _BZIP2 = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"BZh"
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
# A copied log often kept the codes and lost the escape character before them.
_BARE_COLOUR = re.compile(rb"\[(?:0|1|3[0-79]|9[0-7])(?:;\d{1,2})*m")
LONGEST_SEARCHED = 4096
"""No program prints a metric that far to the right, and searching endless lines takes endless time."""
_LONG_LINE = re.compile(rb"([^\n]{%d})[^\n]+" % LONGEST_SEARCHED)
_TEXT = bytes((*range(32, 127), *range(128, 256), 0, 7, 8, 9, 10, 12, 13, 27))


def open_log(path: Path, *, quietly: bool = False) -> IO[bytes]:
    """The log's bytes, decompressed; raises RequestError where that is not possible.

    Compression is told by the content: gzip, xz, bzip2 and zstd. Of a file that grows beyond all measure the beginning is
    read, and a warning says so unless `quietly`. A pipe is read as it is, once; one with a name is not waited for without end.
    """
    try:
        if path.is_fifo():
            return path.open("rb") if path.is_relative_to("/dev") else _open_pipe(path)
        with path.open("rb") as file:
            magic = file.read(6)
        inflated = _inflated(path, magic)
        if inflated is None:
            return path.open("rb")
        told = None if quietly else path
        return cast(IO[bytes], _OnceOnly(_Measured(inflated, told, MOST_TIMES * path.stat().st_size), told))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from error


PATIENCE_S = 10.0
"""For whoever is to write into a pipe: a program that decompresses a log needs a moment."""


def _open_pipe(path: Path) -> IO[bytes]:
    """A pipe with a name, as soon as something is written into it."""
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    waiting = select.poll()
    waiting.register(pipe)
    if not waiting.poll(PATIENCE_S * 1000):
        os.close(pipe)
        raise RequestError(
            f"{path} is a named pipe, into which nothing was written for {PATIENCE_S:.0f} s. Start what writes into it first, or name "
            "a file, or - for standard input."
        )
    os.set_blocking(pipe, True)
    return open(pipe, "rb")


def _inflated(path: Path, magic: bytes) -> IO[bytes] | None:
    """The file decompressed; None where it is not compressed."""
    if magic.startswith(GZIP):
        return cast(IO[bytes], Gzip(path))
    if magic.startswith(_XZ):
        return cast(IO[bytes], Xz(path))
    if magic.startswith(_BZIP2):
        import bz2

        return bz2.open(path, "rb")
    return _open_zstd(path) if magic.startswith(_ZSTD) else None


_TOO_WIDE = f"its dictionary has more than {1 << LARGEST_WINDOW_LOG - 20} MiB; pipe it: xz -dc, or zstd --long=31 -dc"


class _Measured:
    """A file that ends where it became much larger than it can be."""

    def __init__(self, file: IO[bytes], path: Path | None, most: int) -> None:
        """`path` is what a warning is about; without it there is none."""
        self._file = file
        self._path = path
        self._left = max(most, MOST_INFLATED)

    def __enter__(self) -> _Measured:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        if self._left <= 0:
            return b""
        text = self._file.read(size)
        self._left -= len(text)
        if self._left <= 0 and self._path is not None:
            pass_over(
                self._path, f"it is more than {MOST_TIMES} times as large decompressed; what follows that is not read"
            )
        return text


class _OnceOnly:
    """A file without the copies of lines that go on and on; a warning says how many bytes of them were left out."""

    def __init__(self, file: _Measured, path: Path | None) -> None:
        self._file = file
        self._path = path
        self._read = 0
        self._before = b""
        self._left_out = 0
        self.unread: str | None = None

    @property
    def is_begun(self) -> bool:
        return self._read > 0

    def __enter__(self) -> _OnceOnly:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)

    def read(self, size: int) -> bytes:
        while text := self._file.read(size):
            self._read += len(text)
            period = _period(self._before) if self._read > REPEATED_AFTER else 0
            before, self._before = self._before, (self._before + text)[-2 * LONGEST_PERIOD :]
            if not period or not _goes_on(before, text, period):
                return text
            copies = len(text) // period * period  # what is left goes on where the text before it ended
            self._left_out += copies
            if copies < len(text):
                return text[copies:]
        self._tell()
        return b""

    def _tell(self) -> None:
        if self._left_out and self._path is not None:
            said, self._left_out = self._left_out, 0
            pass_over(
                self._path,
                f"{said >> 20} MiB of it repeat the lines before them and are not read; lines are counted without them",
            )


def _period(text: bytes) -> int:
    """Bytes after which the lines of `text` repeat those before them, all through it; 0 where they do not."""
    end = text.rfind(b"\n") + 1
    line = text[text.rfind(b"\n", 0, max(0, end - 1)) : end] if end > 1 else b""
    earlier = end
    for _ in range(_TRIES if line else 0):  # within a period, its last line may stand several times
        earlier = text.rfind(line, max(0, end - LONGEST_PERIOD), earlier - 1)
        if earlier < 0:
            return 0
        period = end - len(line) - earlier
        if text.startswith(text[period:end]):
            return period
        earlier += len(line)
    return 0


def _goes_on(before: bytes, text: bytes, period: int) -> bool:
    """Whether `text` only repeats what stands so many bytes before it."""
    return (before[-period:] + text)[: len(text)] == text


def _open_zstd(path: Path) -> IO[bytes]:
    """From Python 3.14 on the standard library reads zstd; before, the package zstandard does."""
    try:
        module = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "zstandard")
    except ImportError as error:
        raise RequestError(
            f"{path} is compressed with zstd, and the Python package zstandard is not installed. "
            "Install it (python -m pip install zstandard), or pipe the log: zstd -dc FILE | hpc-llm parse -"
        ) from error
    if sys.version_info >= (3, 14):
        limit = {module.DecompressionParameter.window_log_max: LARGEST_WINDOW_LOG}
        return cast(IO[bytes], module.open(path, "rb", options=limit))
    limited = module.ZstdDecompressor(max_window_size=1 << LARGEST_WINDOW_LOG)
    return cast(IO[bytes], limited.stream_reader(path.open("rb"), read_across_frames=True, closefd=True))


def reads(file: Readable, path: object) -> Iterator[bytes]:
    """The bytes of `file` as they are, `BLOCK` at a time; what can be read of a broken file."""
    while True:
        try:
            read = next_text(file, BLOCK)
        except (OSError, EOFError) as error:
            # A compressed log of a job that died is often cut short: what came before is good.
            if isinstance(error, OSError) and error.errno is not None:
                raise RequestError(f"cannot read {path}: {error.strerror}") from error
            notice(f"{path} is compressed, and cut or damaged at its end: what stands before that is read.")
            return
        except Exception as error:  # each decompressor has its own
            if type(error).__name__ not in ("ZstdError", "LZMAError", "error"):
                raise
            if "memory" in str(error).lower():
                _note_unread(file)
                pass_over(path, _TOO_WIDE)
            return
        if not read:
            return
        yield read


def _note_unread(file: Readable) -> None:
    if isinstance(file, _OnceOnly) and not file.is_begun:
        file.unread = _TOO_WIDE


def why_unread(file: Readable) -> str | None:
    """Why nothing of a log could be read that was read for: it may hold any text. None where it could."""
    return file.unread if isinstance(file, _OnceOnly) else None


def next_text(file: Readable, size: int) -> bytes:
    """The next bytes of `file`, in which each hole is a `HOLE`, however large."""
    hole = b""
    while text := file.read(size):
        if HOLE not in text:
            return hole + text
        if text.strip(b"\0"):
            return hole + _HOLE.sub(HOLE, text)
        hole = HOLE
        skip_hole(file)
    return hole


def skip_hole(file: Readable) -> None:
    """Go on where the file system has data again, if it knows."""
    if not isinstance(file, io.BufferedReader) or not file.seekable() or not hasattr(os, "SEEK_DATA"):
        return
    place = file.tell()
    try:
        file.seek(os.lseek(file.fileno(), place, os.SEEK_DATA))
    except OSError as error:
        file.seek(
            0 if error.errno == errno.ENXIO else place, os.SEEK_END if error.errno == errno.ENXIO else os.SEEK_SET
        )


def head(parts: Iterator[bytes], length: int = HEAD) -> bytes:
    """The first `length` bytes or so of what comes in parts; never there twice, as where a list of them is joined."""
    taken = io.BytesIO()
    while taken.tell() < length and (part := next(parts, b"")):
        taken.write(part)
    return taken.getvalue()


def blocks(file: Readable, path: object) -> Iterator[bytes]:
    """The text of `file`, cleaned, in blocks that end at the end of a line."""
    rest = b""
    for read in reads(file, path):
        text = rest + read
        cut = end_of_lines(text, 0, len(text))
        if cut:
            yield clean(text[:cut])
        rest = text[cut:]
    if rest:
        yield clean(rest)


def end_of_lines(text: bytes, begin: int, end: int) -> int:
    """Where the last whole line ends between these positions; `begin` where there is none.

    A carriage return ends a line, too: the lines of a log with bars would else be cut from the bars below them. A line longer than
    `LONGEST_LINE` ends anywhere.
    """
    newline, bar = text.rfind(b"\n", begin, end) + 1, text.rfind(b"\r", begin, end - 1) + 1
    cut = bar if bar > newline and text[bar : bar + 1] != b"\n" else newline
    if cut:
        return cut
    return end if end - begin > LONGEST_LINE else begin


class Piece:
    """The lines of a plain file that begin at or after `begin` and before `end`, read like a file."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file = file
        self._left = 0
        first = self._line_start(begin)
        self._left = max(0, self._line_start(end) - first)
        file.seek(first)

    def _line_start(self, position: int) -> int:
        """Where the first line begins that does so at or after `position`."""
        if position <= 0:
            return 0
        self._file.seek(position - 1)
        passed = position - 1
        while text := self._file.read(SAMPLE):
            found = text.find(b"\n")
            if found >= 0:
                return passed + found + 1
            passed += len(text)
        return passed

    def read(self, size: int) -> bytes:
        text = self._file.read(min(size, self._left))
        self._left -= len(text)
        return text


def is_plain(path: Path) -> bool:
    """Whether `path` is neither compressed, nor a document that is read whole, nor mostly empty."""
    with path.open("rb") as file:
        start = file.read(512)
        status = os.fstat(file.fileno())
    if getattr(status, "st_blocks", status.st_size) * 1024 < status.st_size:
        return False  # mostly a hole, which one reader gets over at once
    return not start.startswith((GZIP, _XZ, _ZSTD, _BZIP2)) and not start.lstrip().startswith(b"{")


def clean(text: bytes) -> bytes:
    """`text` without NUL bytes, terminal codes and blanks before the end of a line; each ends with a newline, a bar's states too.

    A hole in a line ends it.
    """
    if b"\0" in text:
        text = _IN_A_LINE.sub(b"\n", text).translate(None, b"\0")
    if b"#" in text and (b"#015" in text or b"#033[" in text):  # control characters as log services write them
        text = text.replace(b"#015", b"\n").replace(b"#033[", b"\x1b[")
    if b"\x1b" in text:
        text = _ESCAPE.sub(b"", text)
    sample = text[:SAMPLE]
    if b"[0m" in sample or b"[39m" in sample:
        text = _BARE_COLOUR.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b" \n" in text or b"\t\n" in text or text.endswith((b" ", b"\t")):
        text = b"\n".join([line.rstrip(b" \t") for line in text.split(b"\n")])
    return text


def without_endless_lines(text: bytes) -> bytes:
    """The text with its lines cut where nothing is searched any more."""
    return _LONG_LINE.sub(rb"\1", text) if max(map(len, text.split(b"\n"))) > LONGEST_SEARCHED else text


def is_binary(sample: bytes) -> bool:
    """Whether `sample` is no text at all."""
    start = sample[:4096]
    return len(start.translate(None, _TEXT)) * 10 > len(start)
