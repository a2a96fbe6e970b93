"""One file from a source to this file system: going on where a part of it lies, checked against its digest, whole or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpc_llm.errors import FetchError
from hpc_llm.fetching.listing import Entry
from hpc_llm.fetching.patience import Patience, TryAgain
from hpc_llm.fetching.progress import Watch
from hpc_llm.fetching.source import Stream
from hpc_llm.fetching.whole import holds

_CHUNK = 1 << 20
_TRIES = 2
"""So often a file may turn out to be another one than is listed."""
UNFINISHED = ".part"


class Transfer:
    """Brings one file to `target`; meanwhile it lies beside it, and what lies there from an earlier try is used."""

    def __init__(
        self, entry: Entry, target: Path, open_at: Callable[[int], Stream], patience: Patience, watch: Watch
    ) -> None:
        self._entry = entry
        self._target = target
        self._part = target.with_name(target.name + UNFINISHED)
        self._open_at = open_at
        self._patience = patience
        self._watch = watch

    def run(self) -> None:
        """Raises Stopped, OSError, or FetchError where the file cannot be had, or is not the one that is listed."""
        if holds(self._target, self._entry, self._patience.check):
            self._watch.here(self._entry.size)
            return
        self._target.unlink(missing_ok=True)
        for _ in range(_TRIES):
            if self._try():
                os.rename(self._part, self._target)
                return
            self._part.unlink(missing_ok=True)
            self._watch.here(-self._entry.size)
        raise FetchError(
            f"{self._entry.path} came {_TRIES} times as something else than is listed: its {self._entry.algorithm} is not "
            f"{self._entry.digest}. Nothing of it was kept; try again later, or from somewhere else."
        )

    def _try(self) -> bool:
        """Fill the part to its end; whether it then is what is listed."""
        handle = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            found = self._fill(handle)
            _synced(handle)
        finally:
            os.close(handle)
        return found == self._entry.digest

    def _fill(self, handle: int) -> str:
        sum_, have = self._kept(handle)
        while have < self._entry.size:
            self._patience.check()
            try:
                with self._open_at(have) as stream:
                    if stream.start != have:
                        self._watch.here(-have)
                        sum_, have = self._emptied(handle)
                    have = self._copy(stream, handle, sum_, have)
                if have < self._entry.size:
                    raise TryAgain("the connection ended before the file did")
            except TryAgain as error:
                have = os.lseek(handle, 0, os.SEEK_CUR)
                self._patience.wait(error)
        return str(sum_.hexdigest())

    def _kept(self, handle: int) -> tuple[Any, int]:
        """The sum and size of what lies there from an earlier try."""
        if os.fstat(handle).st_size > self._entry.size:
            return self._emptied(handle)
        sum_, have = self._entry.hasher(), 0
        while chunk := os.read(handle, _CHUNK):
            self._patience.check()
            sum_.update(chunk)
            have += len(chunk)
        self._watch.here(have)
        return sum_, have

    def _emptied(self, handle: int) -> tuple[Any, int]:
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        return self._entry.hasher(), 0

    def _copy(self, stream: Stream, handle: int, sum_: Any, have: int) -> int:
        """Append what comes, up to the size of the file; how much there is then."""
        while have < self._entry.size and (chunk := stream.some(min(_CHUNK, self._entry.size - have))):
            self._patience.check()
            _write(handle, chunk)
            sum_.update(chunk)
            have += len(chunk)
            self._patience.moved()
            self._watch.received(len(chunk))
        return have


def _write(handle: int, chunk: bytes) -> None:
    """Write all of it: a file system that fills up takes a part first."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _synced(handle: int) -> None:
    """Let the file survive the machine; some file systems tell only here that they had no room."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
