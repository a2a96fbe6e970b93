"""Logs of any origin: which files belong to one job, and their diagnosis."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from hpc_llm.causes.log import LogFindings, verdict_on
from hpc_llm.causes.program import NONE
from hpc_llm.causes.search import Found
from hpc_llm.causes.verdict import Verdict, decide
from hpc_llm.diagnose.diagnosis import Diagnosis, conclude
from hpc_llm.parse.read import endings_of, inputs
from hpc_llm.text import sources
from hpc_llm.text.blocks import open_blocks

STDIN = "-"
_STREAM_ENDING = re.compile(r"\.(?:out|err|log|txt|[oe]\d+)$")
_PER_RANK = frozenset(("stdout.log", "stderr.log"))
BEGINNING, END = 1 << 19, 1 << 21
"""Bytes of a log that are parsed to see how it ended."""
_IN_MEMORY = 1 << 24
"""Bytes of a pipe that are kept there; it is read twice."""


def read_log(path: Path, name: str | None = None) -> LogFindings:
    """What one file says; raises RequestError where it cannot be read."""
    shown = name or str(path)
    with sources.open_log(path) as file:
        return LogFindings(shown).read(open_blocks(file, shown))


def diagnose_files(paths: Sequence[Path]) -> Diagnosis:
    """The diagnosis of one job that left these files."""
    source, logs = str(paths[0]), [read_log(path) for path in paths]
    if len(paths) > 1:
        return conclude(source, logs, *verdict_on(logs))
    with sources.open_log(paths[0]) as file:
        return conclude(source, logs, *_as_parsed(logs, source, file))


def diagnose_stream(file: IO[bytes], name: str = "stdin") -> Diagnosis:
    """The diagnosis of a log that is read from a pipe."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
        shutil.copyfileobj(file, kept)
        kept.seek(0)
        logs = [LogFindings(name).read(open_blocks(kept, name))]
        kept.seek(0)
        return conclude(name, logs, *_as_parsed(logs, name, kept))


def _as_parsed(logs: Sequence[LogFindings], name: str, file: IO[bytes]) -> tuple[Verdict, list[Found]]:
    """The verdict on one log, and what it rests on.

    The parser knows the steps of each program and so what its messages are worth: where the log by itself says something
    else than every run that the parser finds in it, the last of these counts.
    """
    verdict, found = verdict_on(logs)
    endings = endings_of(name, _beginning_and_end(file, name))
    if endings is None or (not endings and verdict.cause is not NONE):
        return verdict, found
    if not endings:
        return decide([], completed=False), []
    if any(one.cause is verdict.cause for one, _ in endings):
        return verdict, found
    parsed = endings[-1][0]
    if parsed.root is None:
        return parsed, []
    seen = next((one for one in found if one.text == parsed.root.text and one.cause is parsed.cause), None)
    root = seen or replace(parsed.root, file=name)
    return replace(parsed, root=root), [root]


def _beginning_and_end(file: IO[bytes], name: str) -> IO[bytes]:
    """So much of a log as its end needs: what the program is stands at the beginning, how it ended at the end."""
    first = sources.head(sources.reads(file, name), BEGINNING)
    if len(first) < BEGINNING:
        return io.BytesIO(first)
    parts: deque[bytes] = deque()
    size = skipped = 0
    for part in sources.reads(file, name):
        parts.append(part)
        size += len(part)
        while size - len(parts[0]) > END:
            size -= len(parts[0])
            skipped += len(parts.popleft())
    rest = b"".join(parts)
    if not skipped:
        return io.BytesIO(first + rest)
    return io.BytesIO(first[: first.rfind(b"\n") + 1] + rest[rest.find(b"\n") + 1 :])


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
