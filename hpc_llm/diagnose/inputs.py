"""Logs of any origin: which files belong to one job, and their diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from hpc_llm.causes.log import LogFindings
from hpc_llm.diagnose.diagnosis import Diagnosis, conclude
from hpc_llm.parse.read import inputs
from hpc_llm.text import sources
from hpc_llm.text.blocks import open_blocks

STDIN = "-"
_STREAM_ENDING = re.compile(r"\.(?:out|err|log|txt|[oe]\d+)$")
_PER_RANK = frozenset(("stdout.log", "stderr.log"))


def read_log(path: Path, name: str | None = None) -> LogFindings:
    """What one file says; raises RequestError where it cannot be read."""
    shown = name or str(path)
    with sources.open_log(path) as file:
        return LogFindings(shown).read(open_blocks(file, shown))


def diagnose_files(paths: Sequence[Path]) -> Diagnosis:
    """The diagnosis of one job that left these files."""
    return conclude(str(paths[0]), [read_log(path) for path in paths])


def diagnose_stream(file: IO[bytes], name: str = "stdin") -> Diagnosis:
    """The diagnosis of a log that is read from a pipe."""
    return conclude(name, [LogFindings(name).read(open_blocks(file, name))])


def jobs_under(paths: Iterable[Path]) -> list[list[Path]]:
    """The runs and files under `paths`, those of one job together: `x.out` and `x.err`, or torchrun's log folder."""
    jobs: dict[str, list[Path]] = {}
    for given in paths:
        for path in inputs([given]):
            if path.name in _PER_RANK and given.is_dir():
                key = str(given)
            else:
                key = _STREAM_ENDING.sub("", str(path)) if given.is_dir() else str(path)
            jobs.setdefault(key, []).append(path)
    return list(jobs.values())
