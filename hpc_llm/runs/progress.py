"""How far a run has come, from the end of its steps.jsonl: the file may be large and its file system slow."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TAIL_BYTES = 32 * 1024


@dataclass(frozen=True)
class Progress:
    step: int | None = None
    tokens_per_second: float | None = None
    """Over the latest measured steps; None while only warm-up steps are there."""


def read_progress(steps: Path) -> Progress:
    """Progress by the last lines of `steps`; a line still being written is left out."""
    records = [record for record in map(_record, _tail(steps, _TAIL_BYTES).splitlines()) if record]
    if not records:
        return Progress()
    return Progress(records[-1].get("step"), _rate([r for r in records if not r.get("warmup")]))


def last_text(path: Path, size: int = 8192) -> str:
    """The end of a log, for the words a scheduler leaves there."""
    return _tail(path, size)


def _rate(records: list[dict[str, Any]]) -> float | None:
    """Tokens over seconds, so that a slow step weighs as long as it took."""
    timed = [(r.get("tokens_per_second") or 0.0, r.get("step_time_s") or 0.0) for r in records]
    seconds = sum(time for _, time in timed)
    return sum(rate * time for rate, time in timed) / seconds if seconds else None


def _tail(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _record(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
