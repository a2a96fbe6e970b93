"""The figures of a run step by step, of all its tries as one training: steps.jsonl and evaluations.jsonl joined.

A try that went on from a checkpoint makes steps again that the one before it had made: the later ones count. Files are read
strictly, for a tracker shows a hole as if nothing had been there; half of a last line is what a killed run leaves.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from hpc_llm.records.files import json_object, open_regular, reason_of
from hpc_llm.records.possible import is_known, is_possible
from hpc_llm.records.run import RunPaths
from hpc_llm.text.json_text import DamagedRecordError

_LONGEST_LINE = 1 << 20
"""Bytes."""
_LARGEST = 1 << 53
"""Beyond it a whole number is no count, and trackers hold it inexactly."""
_NO_FIGURES = frozenset(("step", "time"))


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures behind one step."""

    step: int
    time: float | None
    """Unix time of its end; None where it is not known."""
    figures: Mapping[str, float]


def history(run: RunPaths) -> Iterator[Point]:
    """The points of a run, by rising step.

    Raises:
        DamagedRecordError: a file of them is not whole; its message names file and line.
    """
    tries = [*run.earlier_tries(), run]
    starts = [list(_starts(one.steps)) for one in tries]
    ends = [min((first for later in starts[k + 1 :] for first in later), default=None) for k in range(len(tries))]
    steps = (point for one, own, end in zip(tries, starts, ends, strict=True) for point in _kept(one.steps, own, end))
    evaluations = (
        point
        for one, end in zip(tries, ends, strict=True)
        for point in _rising(one.evaluations)
        if _is_before(point, end)
    )
    yield from _joined(heapq.merge(steps, evaluations, key=attrgetter("step")))


def _is_before(point: Point, end: int | None) -> bool:
    return end is None or point.step < end


def _starts(path: Path) -> Iterator[int]:
    """The first step of the file, and each with which it begins anew, as files of version 0.1 do for a second try."""
    before: int | None = None
    for point in _points(path):
        if before is None or point.step <= before:
            yield point.step
        before = point.step


def _kept(path: Path, starts: Sequence[int], end: int | None) -> Iterator[Point]:
    """The points of the file that no later part of it, nor a later try, made anew."""
    part, before = -1, math.inf
    limit: float = math.inf
    for point in _points(path):
        if point.step <= before:
            part += 1
            limit = min([*starts[part + 1 :], *([] if end is None else [end])], default=math.inf)
        before = point.step
        if point.step < limit:
            yield point


def _rising(path: Path) -> Iterator[Point]:
    """The evaluations of the file by rising step; the last one of a step counts."""
    by_step = {point.step: point for point in _points(path)}
    return iter(sorted(by_step.values(), key=attrgetter("step")))


def _joined(points: Iterator[Point]) -> Iterator[Point]:
    """One point a step, of what steps and evaluations say of it."""
    held: Point | None = None
    for point in points:
        if held is not None and held.step == point.step:
            figures = {**held.figures, **point.figures}
            held = Point(step=point.step, time=held.time if point.time is None else point.time, figures=figures)
            continue
        if held is not None:
            yield held
        held = point
    if held is not None:
        yield held


def _points(path: Path) -> Iterator[Point]:
    for number, record in _records(path):
        step = record.get("step")
        if not isinstance(step, int) or not is_possible("step", step):
            raise DamagedRecordError(f"{path.name}, line {number}: it names no step")
        yield Point(step=step, time=_moment(record.get("time")), figures=_figures(record))


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with the numbers of their lines."""
    try:
        file = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DamagedRecordError(f"{path.name}: {reason_of(error)}") from None
    if file is None:
        raise DamagedRecordError(f"{path.name}: it is no regular file")
    with file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            record = json_object(line)
            if record is not None:
                yield number, record
            elif line.endswith(b"\n") or len(line) == _LONGEST_LINE or b"\0" in line:
                raise DamagedRecordError(f"{path.name}, line {number}: it is no JSON object")


def _figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record that can be; truth is 1 or 0."""
    return {name: value for name, value in record.items() if name not in _NO_FIGURES and is_figure(name, value)}


def is_figure(name: str, value: object) -> bool:
    """Whether a tracker can draw that value: a finite number, and one that can be where its name is known."""
    if isinstance(value, bool):
        return True
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >= _LARGEST):
        return False
    return math.isfinite(value) and (not is_known(name) or is_possible(name, value))


def _moment(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else None
