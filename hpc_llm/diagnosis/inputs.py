"""Logs of any origin: which files belong to one job, and their diagnosis."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, cast

from hpc_llm.causes.log import LogFindings, verdict_on
from hpc_llm.causes.program import NONE
from hpc_llm.causes.verdict import decide
from hpc_llm.diagnosis.diagnosis import Diagnosis, conclude
from hpc_llm.diagnosis.runs_in_log import diagnose_log, has_come_to_its_end
from hpc_llm.parsing.inputs import inputs
from hpc_llm.parsing.streams import pairs
from hpc_llm.text import sources

STDIN = "-"
_STREAM_ENDING = re.compile(r"\.(?:out|err|log|txt|[oe]\d+)$")
_PER_RANK = frozenset(("stdout.log", "stderr.log"))
_IN_MEMORY = 1 << 24
"""Bytes of a pipe that are kept there; it is read twice."""


def read_log(path: Path, name: str | None = None) -> LogFindings:
    """What one file says; raises RequestError where it cannot be read."""
    shown = name or str(path)
    with sources.open_log(path) as file:
        return LogFindings(shown).read_file(file)


def diagnose_files(paths: Sequence[Path]) -> Diagnosis:
    """The diagnosis of one job that left these files; of a single file, with that of each run in it."""
    if len(paths) == 1 and paths[0].is_fifo():
        with sources.open_log(paths[0]) as pipe:
            return diagnose_stream(pipe, str(paths[0]))
    source, logs = str(paths[0]), [read_log(path) for path in paths]
    if len(paths) > 1:
        verdict, found = verdict_on(logs)
        if verdict.cause is NONE and not any(map(_has_come_to_its_end, paths)):  # what did is something else
            verdict, found = decide([], completed=False), []
        return conclude(source, logs, verdict, found)

    def again() -> IO[bytes]:
        return sources.open_log(paths[0])

    return diagnose_log(logs[0], again)


def _has_come_to_its_end(path: Path) -> bool:
    with sources.open_log(path, quietly=True) as file:
        return has_come_to_its_end(str(path), file)


def diagnose_stream(file: IO[bytes], name: str = "stdin") -> Diagnosis:
    """The diagnosis of a log that is read from a pipe."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
        shutil.copyfileobj(file, kept)

        def again() -> IO[bytes]:
            kept.seek(0)
            return cast(IO[bytes], _Open(kept))

        log = LogFindings(name).read_file(again())
        return diagnose_log(log, again)


class _Open:
    """A file that its readers may close, and that stays open."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read = file.read

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def jobs_under(paths: Iterable[Path]) -> list[list[Path]]:
    """The runs and files under `paths`, those of one job together: `x.out` and `x.err`, or torchrun's log folder."""
    jobs: dict[str, list[Path]] = {}
    asked = list(paths)
    outputs = pairs(path for path in asked if path.is_file())
    for given in asked:
        for path in inputs([given]):
            if path.name in _PER_RANK and given.is_dir():
                key = str(given)
            else:
                key = _STREAM_ENDING.sub("", str(path)) if given.is_dir() else outputs.get(str(path), str(path))
            jobs.setdefault(key, []).append(path)
    return list(jobs.values())
