"""How far a run has come, from the end of its steps.jsonl: the file may be large and its file system slow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.record_files import json_object, open_regular
from hpc_llm.runs.fields import Fields

_TAIL_BYTES = 16 * 1024
_LAST_LINES_BYTES = 2048
_LATEST = 24
"""Steps over which the rate is taken."""


@dataclass(frozen=True)
class Progress:
    step: int | None = None
    tokens_per_second: float | None = None
    """Over the latest measured steps; None while only warm-up steps are there."""


def read_progress(steps: Path, rate: bool = True) -> Progress:
    """Progress by the last lines of `steps`; a line still being written is left out. Without `rate` only the step."""
    if not rate:
        last_lines = reversed(_tail(steps, _LAST_LINES_BYTES).splitlines())
        last = next(filter(None, map(json_object, last_lines)), None)
        return Progress(Fields(last or {}).whole("step", least=0))
    lines = _tail(steps, _TAIL_BYTES).splitlines()
    records = [record for record in map(json_object, lines[-_LATEST:]) if record]
    if not records:
        return Progress()
    return Progress(Fields(records[-1]).whole("step", least=0), _rate([r for r in records if not r.get("warmup")]))


@dataclass(frozen=True)
class Pace:
    """How fast a run came how far."""

    step: int | None
    """The last one that it made."""
    step_time_s: float | None
    """Mean over the latest measured steps, or of all where none was measured."""
    ended_at: float | None
    """Unix time at which the last step ended."""


def read_pace(steps: Path) -> Pace | None:
    """The pace by the last lines of `steps`; None where they hold no step."""
    records = [record for line in _tail(steps, _TAIL_BYTES).splitlines()[-_LATEST:] if (record := json_object(line))]
    if not records:
        return None
    measured = [record for record in records if not record.get("warmup")] or records
    times = [time for record in measured if (time := Fields(record).seconds("step_time_s"))]
    last = Fields(records[-1])
    return Pace(last.whole("step", least=0), sum(times) / len(times) if times else None, last.moment("time"))


def _rate(records: list[dict[str, Any]]) -> float | None:
    """Tokens over seconds, so that a slow step weighs as long as it took."""
    known = map(Fields, records)
    timed = [(f.rate("tokens_per_second") or 0.0, f.seconds("step_time_s") or 0.0) for f in known]
    seconds = sum(time for _, time in timed)
    return sum(rate * time for rate, time in timed) / seconds if seconds else None


def _tail(path: Path, size: int) -> bytes:
    try:
        file = open_regular(path)
        if file is None:
            return b""
        with file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            return file.read()
    except OSError:
        return b""
