"""How far a run has come, from both ends of its steps.jsonl: the file may be large and its file system slow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.records.files import json_object, open_regular
from hpc_llm.records.possible import figure_of, is_possible
from hpc_llm.runs.fields import Fields

_END_BYTES = 16 * 1024
"""What is read of either end; a shorter file is read whole."""
_LAST_LINES_BYTES = 2048


@dataclass(frozen=True)
class Progress:
    step: int | None = None
    tokens_per_second: float | None = None
    """Over all measured steps so far, as in the result; None while only warm-up steps are there."""


def read_progress(steps: Path, rate: bool = True) -> Progress:
    """Progress by the lines of `steps`; a line still being written is left out. Without `rate` only the step."""
    if not rate:
        last_lines = reversed(_part(steps, _LAST_LINES_BYTES, of_the_end=True).splitlines())
        last = next(filter(None, map(json_object, last_lines)), None)
        return Progress(Fields(last or {}).whole("step", least=0))
    records = _records(steps)
    if not records:
        return Progress()
    measured = [record for record in records if not record.get("warmup")]
    seconds = _mean_seconds(measured)
    tokens = _tokens_of_a_step(measured)
    found = tokens / seconds if tokens and seconds else None
    return Progress(
        Fields(records[-1]).whole("step", least=0), found if is_possible("tokens_per_second", found) else None
    )


@dataclass(frozen=True)
class Pace:
    """How fast a run came how far."""

    step: int | None
    """The last one that it made."""
    step_time_s: float | None
    """Mean over the measured steps, or of all where none was measured."""
    ended_at: float | None
    """Unix time at which the last step ended."""
    before: int = 0
    """Steps of the training that others had made, from whose checkpoint it went on."""


def read_pace(steps: Path) -> Pace | None:
    """The pace by the lines of `steps`; None where they hold no step."""
    records = _records(steps)
    if not records:
        return None
    measured = [record for record in records if not record.get("warmup")] or records
    last = Fields(records[-1])
    before = max(int(records[0]["step"]) - 1, 0)
    return Pace(last.whole("step", least=0), _mean_seconds(measured), last.moment("time"), before)


def _records(steps: Path) -> list[dict[str, Any]]:
    """The steps at both ends of the file, or all of a short one."""
    head = _part(steps, _END_BYTES, of_the_end=False)
    lines = head.splitlines()
    if len(head) == _END_BYTES:
        lines = lines[:-1] + _part(steps, _END_BYTES, of_the_end=True).splitlines()
    records = [record for line in lines if (record := json_object(line)) and is_possible("step", record.get("step"))]
    unique = {record["step"]: record for record in records}
    return [unique[step] for step in sorted(unique)]


def _mean_seconds(records: list[dict[str, Any]]) -> float | None:
    """Seconds of a step: where some in the middle were not read, by the times at which the first and the last one ended."""
    times = [time for record in records if (time := figure_of(record, "step_time_s"))]
    if not times:
        return None
    first, last = records[0], records[-1]
    began, ended = Fields(first).moment("time"), Fields(last).moment("time")
    steps = int(last["step"]) - int(first["step"])
    if steps < len(records) or began is None or ended is None or ended <= began:
        return sum(times) / len(times)
    return (times[0] + ended - began) / (steps + 1)


def _tokens_of_a_step(records: list[dict[str, Any]]) -> float | None:
    known = map(Fields, reversed(records))
    found = ((f.rate("tokens_per_second") or 0.0) * (f.seconds("step_time_s") or 0.0) for f in known)
    return next(filter(None, found), None)


def _part(path: Path, size: int, *, of_the_end: bool) -> bytes:
    try:
        file = open_regular(path)
        if file is None:
            return b""
        with file:
            if of_the_end:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""
