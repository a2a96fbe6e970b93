"""From a trace to what profile.json says: shares of the step, kernels by time, waits. Standard library only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from hpc_llm.worker.profiling import events as marked
from hpc_llm.worker.profiling.events import COMMUNICATION, COMPUTE, IDLE, KINDS, OF_OPTIMIZER, Event, Piece
from hpc_llm.worker.profiling.intervals import Span, length, shared_out, union, within

SCHEMA = 1
MOST = 40
"""Kernels, and waits, that are listed; the rest is one sum."""
_S = 1e-6
"""Seconds in a unit of the trace."""


def summarize(trace: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figures of the marked steps, a step's mean each; None where the trace holds none."""
    events = marked.read_events(trace)
    steps = marked.steps_of(events)
    if not steps:
        return None
    on_gpu = marked.is_of_gpu(events)
    pieces = _in_steps(marked.device_pieces(events) if on_gpu else marked.host_pieces(events), steps)
    spans = {kind: [piece.span for piece in pieces if piece.kind == kind] for kind in KINDS}
    seconds = {name: value * _S / len(steps) for name, value in shared_out(spans, steps, IDLE).items()}
    whole = length(union(steps)) * _S / len(steps)
    return {
        "schema": SCHEMA,
        "device": "gpu" if on_gpu else "cpu",
        "steps": len(steps),
        "step_time_s": whole,
        "seconds": seconds,
        "shares": {name: value / whole for name, value in seconds.items()},
        "hidden_communication_s": _hidden(spans) * _S / len(steps),
        **_by_time("kernels", _kernels(pieces), whole, len(steps)),
        **_by_time("waits", _waits(events), whole, len(steps)),
    }


def _in_steps(pieces: Sequence[Piece], steps: Sequence[Span]) -> list[Piece]:
    """Those that begin in a step, cut off at its end."""
    found, place = [], 0
    ordered = sorted(steps)
    for piece in sorted(pieces, key=lambda one: one.span[0]):
        begin, end = piece.span
        while place < len(ordered) and ordered[place][1] <= begin:
            place += 1
        if place < len(ordered) and ordered[place][0] <= begin:
            found.append(Piece(piece.name, piece.kind, (begin, min(end, ordered[place][1])), piece.is_first))
    return found


def _hidden(spans: Mapping[str, Sequence[Span]]) -> float:
    """How long collectives ran beside computing."""
    return length(within(spans[COMMUNICATION], [*spans[COMPUTE], *spans[OF_OPTIMIZER]]))


_Key = tuple[tuple[str, Any], ...]


def _kernels(pieces: Sequence[Piece]) -> dict[_Key, tuple[float, int]]:
    """Time and calls of each kernel; on the CPU of each operator, without those within it."""
    found: dict[_Key, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for piece in pieces:
        key = (("name", piece.name), ("kind", piece.kind))
        time, calls = found[key]
        found[key] = (time + piece.span[1] - piece.span[0], calls + piece.is_first)
    return found


def _waits(events: Sequence[Event]) -> dict[_Key, tuple[float, int]]:
    found: dict[_Key, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for wait in marked.waits(events):
        key = (("what", wait.what), ("inside", wait.inside))
        time, calls = found[key]
        found[key] = (time + wait.span[1] - wait.span[0], calls + 1)
    return found


def _by_time(name: str, found: Mapping[_Key, tuple[float, int]], whole: float, steps: int) -> dict[str, Any]:
    """The rows that took longest, and what all others took; a step's mean."""
    rows = [
        {**dict(key), "time_s": time * _S / steps, "calls": calls / steps, "share": time * _S / steps / whole}
        for key, (time, calls) in sorted(found.items(), key=lambda item: -item[1][0])
    ]
    rest = sum(row["time_s"] for row in rows[MOST:])
    return {name: rows[:MOST], f"other_{name}": len(rows[MOST:]), f"other_{name}_s": rest}
