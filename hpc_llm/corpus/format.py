"""The files of a corpus, and how they are written: whole or not at all.

A folder holds `corpus.json` and, for each split, the tokens of all samples end to end (int32), where each sample ends (uint64)
and which token of each is the first to be learned (uint32). A token that is not to be learned, as one of a prompt, is written
as its complement, a negative number: so one file says both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from uuid import uuid4

from hpc_llm.corpus.reading import rights_of
from hpc_llm.corpus.words import SPLITS
from hpc_llm.errors import WorkerError
from hpc_llm.records.files import make_shared_folder, reason_of

SCHEMA = 3
FACTS = "corpus.json"
TOKEN, END, START = "i", "Q", "I"
"""Types of the three files, as module `array` spells them."""
MAKING = ".making-"
"""Begins the name of a folder that is being written."""
_ABANDONED_S = 7 * 86400.0
_BUFFERED_TOKENS = 2**18


@dataclass(frozen=True)
class SplitFiles:
    """Where the tokens of one split lie."""

    folder: Path
    split: str

    @property
    def tokens(self) -> Path:
        return self.folder / f"{self.split}.tokens"

    @property
    def ends(self) -> Path:
        """Behind the last token of each sample."""
        return self.folder / f"{self.split}.ends"

    @property
    def starts(self) -> Path:
        """Number of tokens of each sample in front of the first that is to be learned."""
        return self.folder / f"{self.split}.starts"


@dataclass(frozen=True, kw_only=True)
class SplitFacts:
    """What one split holds."""

    samples: int
    tokens: int
    trained_tokens: int
    """Those that are to be learned, where each sample stands alone: nothing predicts the first token of one."""
    longest: int
    """Tokens of the longest sample."""
    longest_at: str
    """Where that one comes from."""
    longest_source: int = 0
    """Most tokens in front of the first that is to be learned."""
    longest_target: int = 0
    """Most tokens from that one on."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of what each of the three files holds, by its name."""


NAMES = frozenset(
    [
        FACTS,
        *(
            path.name
            for one in SPLITS
            for split in [SplitFiles(Path(), one)]
            for path in (split.tokens, split.ends, split.starts)
        ),
    ]
)
"""All that a corpus is made of."""


class SplitWriter:
    """Writes the samples of one split as they come."""

    def __init__(self, folder: Path, split: str, *, is_causal: bool) -> None:
        files = SplitFiles(folder, split)
        self._is_causal = is_causal
        self._files = tuple(_Summed(path) for path in (files.tokens, files.ends, files.starts))
        self._tokens, self._ends, self._starts = self._files
        self._buffer = array(TOKEN)
        self._in_sample = self._trained_in_sample = 0
        self._start: int | None = None
        self.highest = 0
        self.samples = self.tokens = self.trained = 0
        self._longest, self._longest_at, self._longest_source, self._longest_target = 0, "", 0, 0

    def extend(self, tokens: Sequence[int], *, is_trained: bool) -> None:
        """Add tokens to the sample that is being written."""
        if not tokens:
            return
        highest = max(tokens)
        self.highest = max(self.highest, highest)
        if is_trained:
            self._start = self._in_sample if self._start is None else self._start
            self._trained_in_sample += len(tokens)
        self._buffer.extend(tokens if is_trained else [~token for token in tokens])
        self._in_sample += len(tokens)
        if len(self._buffer) >= _BUFFERED_TOKENS:
            self._flush()

    @property
    def is_in_sample(self) -> bool:
        """Whether tokens were added since the last sample ended."""
        return self._in_sample > 0

    def end_sample(self, place: str) -> None:
        """End the sample, which comes from `place`; one without tokens is none."""
        if not self._in_sample:
            return
        start = self._in_sample if self._start is None else self._start
        if self._in_sample > self._longest:
            self._longest, self._longest_at = self._in_sample, place
        self._longest_source = max(self._longest_source, start)
        self._longest_target = max(self._longest_target, self._in_sample - start)
        self.samples += 1
        self.tokens += self._in_sample
        self.trained += self._trained_in_sample - (1 if self._is_causal and start == 0 else 0)
        self._ends.write(array(END, [self.tokens]).tobytes())
        self._starts.write(array(START, [start]).tobytes())
        self._in_sample, self._trained_in_sample, self._start = 0, 0, None

    def close(self) -> SplitFacts:
        """What was written, once it is on the disk."""
        self._flush()
        sums = {file.path.name: file.close() for file in self._files}
        return SplitFacts(
            samples=self.samples,
            tokens=self.tokens,
            trained_tokens=self.trained,
            longest=self._longest,
            longest_at=self._longest_at,
            longest_source=self._longest_source,
            longest_target=self._longest_target,
            sha256=sums,
        )

    def _flush(self) -> None:
        self._tokens.write(self._buffer.tobytes())
        del self._buffer[:]


class _Summed:
    """A new file, as open as its folder is, and the digest of what is written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._sum = _new(path), hashlib.sha256()

    def write(self, content: bytes) -> None:
        self._sum.update(content)
        self._file.write(content)

    def close(self) -> str:
        """The digest, once all is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._sum.hexdigest()


def _new(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, file_mode(path.parent)), "wb")


def file_mode(folder: Path) -> int:
    """The mode of a new file of a folder, which whoever may look into that may read."""
    return folder.stat().st_mode & 0o644


@contextmanager
def new_corpus(caches: Path, key: str, sources: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write a corpus into, which becomes `caches`/`key` once all is written, and else is gone.

    Nobody may read it who may not read all of the files `sources`, of whose content it is made.
    Where another process has finished the same corpus meanwhile its folder stays, and this one's goes.

    Raises:
        WorkerError: the disk is full, or nothing can be written there.
    """
    making = caches / f"{MAKING}{key}-{uuid4()}"
    try:
        make_shared_folder(caches)
        _remove_abandoned(caches)
        making.mkdir(rights_of(sources, caches))
        yield making
        _sync(making)
        _put_in_place(making, caches / key)
        _sync(caches)
    except OSError as error:
        raise WorkerError(
            f"the tokens cannot be written to {caches}: {reason_of(error)}. Nothing of them is left there; make room, or name "
            "another folder with HPC_LLM_CACHE."
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _put_in_place(made: Path, target: Path) -> None:
    try:
        os.rename(made, target)
    except OSError:
        if not (target / FACTS).is_file():
            raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(caches: Path) -> None:
    """What a process that was killed left, a week after it last wrote there."""
    for folder in caches.glob(f"{MAKING}*"):
        if is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Whether nobody has written to it for a week."""
    try:
        last = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return False
    return time.time() - last > _ABANDONED_S
