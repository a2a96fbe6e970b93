"""Bringing models and data sets to this file system."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_llm.fetching.fetch import Fetched
    from hpc_llm.fetching.progress import Progress

_FILES = frozenset({".txt", ".json", ".jsonl", ".csv", ".parquet", ".pdf", ".gz", ".zst", ".md"})
"""What ends so is a file that somebody has or has not."""


def sized(size: float) -> str:
    """A number of bytes as people say it."""
    from hpc_llm.fetching.room import sized as said

    return said(size)


def way_to_dataset(name: str) -> str:
    """How a data set comes here, where somebody who wrote `name` may have meant one of the Hub; else nothing."""
    from hpc_llm.corpus.sets import KNOWN_SETS
    from hpc_llm.fetching.names import DATASETS
    from hpc_llm.records.fetched import fetch_command, is_hub_name

    bare = name.removeprefix("datasets/")
    if bare in DATASETS:
        return (
            f" `{fetch_command(bare)}` brings that data set, then --data {bare + '=' if bare in KNOWN_SETS else ''}DIR."
        )
    if is_hub_name(bare) and Path(bare).suffix not in _FILES:
        return f" If it is a data set of the Hub: `{fetch_command(f'datasets/{bare}')}`, then --data DIR."
    return ""


def fetch(
    name: str,
    *,
    to: str | os.PathLike[str],
    source: str | os.PathLike[str] = "hub",
    revision: str | None = None,
    only: Sequence[str] = (),
    env_file: str | os.PathLike[str] | None = None,
    on_update: Callable[[Progress], None] | None = None,
) -> Fetched:
    """Bring a model or data set into the folder `to`: all that a run needs of it, each file checked against its digest.

    `name` is a preset, a name of the Hub, or `datasets/NAME`; `source` is `hub`, `modelscope` or a folder; `only` are
    patterns of paths that are fetched instead of what a run needs. What an earlier call left is used, and where all is
    here already nothing is asked of anybody.

    Raises:
        RequestError: there is no such thing, it may not be had, or `to` holds something else or has no room.
        FetchError: it came to no end; what was fetched is kept.
    """
    from hpc_llm.fetching.fetch import fetch as bring
    from hpc_llm.text.pasted import refuse_address

    refuse_address("to", os.fspath(to))
    return bring(
        name,
        Path(to),
        source=os.fspath(source),
        revision=revision,
        only=tuple(only),
        env_file=None if env_file is None else os.fspath(env_file),
        listener=on_update,
    )
