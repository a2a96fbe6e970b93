"""What there is to fetch from: the interface of a hub, and of a folder that stands for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from hpc_llm.errors import FetchError
from hpc_llm.fetching.listing import Entry, Listing
from hpc_llm.fetching.names import Wanted
from hpc_llm.fetching.patience import Headers

_LARGEST_READ = 1 << 26


class Readable(Protocol):
    """A file, or what a server sends, as io.BufferedReader is one."""

    def read(self, most: int, /) -> bytes: ...

    def read1(self, most: int, /) -> bytes: ...

    def close(self) -> None: ...


class Stream:
    """The content of a file, from byte `start` on."""

    def __init__(self, file: Readable, start: int, headers: Headers | None = None) -> None:
        self._file = file
        self.start = start
        self.headers: Headers = {} if headers is None else headers

    def read(self, most: int) -> bytes:
        """So many bytes; fewer only at the end."""
        return self._file.read(most)

    def some(self, most: int) -> bytes:
        """What has come so far, and at most so many bytes; waits only where nothing has."""
        return self._file.read1(most)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class Source(ABC):
    """One place that holds models or data sets."""

    word: str
    """What `--from` calls it."""
    who: str
    """What a sentence calls it."""

    @abstractmethod
    def find(self, wanted: Wanted, revision: str | None) -> Listing:
        """What is there of `wanted`. Raises HpcLlmError where it is not to be had."""

    def settle(self, chosen: Sequence[Entry]) -> Sequence[Entry]:
        """The files that are to be fetched, each with its digest; where `find` would have had to read them for that."""
        return chosen

    @abstractmethod
    def open(self, listing: Listing, entry: Entry, start: int) -> Stream:
        """A file from byte `start` on; from its beginning where no part can be had. Raises TryAgain, or HpcLlmError."""

    def read(self, listing: Listing, entry: Entry) -> bytes:
        """A small file whole, checked as all others. Raises TryAgain, or HpcLlmError."""
        if entry.size > _LARGEST_READ:
            raise FetchError(f"{entry.path} of {listing.name} is too large for what it should be: {entry.size} bytes.")
        with self.open(listing, entry, 0) as stream:
            content = stream.read(entry.size)
        sum_ = entry.hasher()
        sum_.update(content)
        if entry.digest and sum_.hexdigest() != entry.digest:
            raise FetchError(f"{entry.path} of {listing.name} is not what {self.who} lists. Nothing was fetched.")
        return content
