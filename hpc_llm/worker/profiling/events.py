"""What a trace of torch.profiler holds, as spans of kinds. Standard library only.

The trace is Chrome's: a span of one thread or stream is an object with `ts` and `dur` in microseconds. On a GPU the kinds are those
of what its streams ran; on the CPU they are those of the innermost operators, a moment in no operator being Python's or nobody's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.worker.profiling.intervals import Span

MARK = "hpc-llm: "
"""Begins the names of spans by which we mark what a step does."""
STEP, BATCH, OPTIMIZER = f"{MARK}step", f"{MARK}next batch", f"{MARK}optimizer"
END = f"{MARK}the device at the end of the step"
"""What it has still to do when the host has handed over all of the step."""
COMPUTE, OF_OPTIMIZER, COMMUNICATION, COPIES, IDLE = "compute", "optimizer", "communication", "copies", "idle"
KINDS = (COMPUTE, OF_OPTIMIZER, COMMUNICATION, COPIES)
"""In the order in which a moment of several is given to one: communication is what computing does not hide."""
_ON_GPU = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_ON_HOST = frozenset(("cpu_op", "user_annotation"))
_CALLS = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime"))
_COLLECTIVE = re.compile(
    r"nccl|rccl|gloo:|c10d::|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_coalesced", re.IGNORECASE
)
_COPY = re.compile(
    r"^(?:aten::(?:copy_|_to_copy|to|clone|contiguous|_pin_memory|pin_memory)|memcpy|memset)\b", re.IGNORECASE
)
_WAITS = re.compile(
    r"synchron|^aten::(?:item|_local_scalar_dense|is_nonzero)$|^(?:cuda|hip)Memcpy(?!.*Async)|::wait$", re.IGNORECASE
)


@dataclass(frozen=True)
class Event:
    """One span of a thread or a stream, in microseconds."""

    name: str
    category: str
    begin: float
    end: float
    place: tuple[Any, Any]
    """Process and thread, or device and stream."""
    link: int | None
    """What ties a kernel to the call that launched it."""


@dataclass(frozen=True)
class Piece:
    """A span of one kind; on the CPU the part of an operator in which none within it ran."""

    name: str
    kind: str
    span: Span
    is_first: bool
    """Whether the operator or kernel begins with it: so many were called."""


def read_events(trace: Mapping[str, Any]) -> list[Event]:
    """The spans of a trace, those of each place in order."""
    found = [
        Event(
            name=str(one.get("name", "")),
            category=str(one.get("cat", "")).lower(),
            begin=float(one["ts"]),
            end=float(one["ts"]) + float(one["dur"]),
            place=(one.get("pid"), one.get("tid")),
            link=_link(one.get("args")),
        )
        for one in trace.get("traceEvents", ())
        if one.get("ph") == "X" and "dur" in one
    ]
    return sorted(found, key=lambda event: (event.begin, -event.end))


def _link(arguments: Any) -> int | None:
    link = arguments.get("correlation") if isinstance(arguments, Mapping) else None
    return link if isinstance(link, int) and link > 0 else None


def steps_of(events: Iterable[Event]) -> list[Span]:
    """When the marked steps were; each waits for the device at its end."""
    return [(event.begin, event.end) for event in events if event.name == STEP and event.category in _ON_HOST]


def is_of_gpu(events: Iterable[Event]) -> bool:
    """Whether a GPU did something in the trace."""
    return any(event.category in _ON_GPU for event in events)


def device_pieces(events: Sequence[Event]) -> list[Piece]:
    """What the streams of the GPU ran."""
    marks = [(event.begin, event.end) for event in events if event.name == OPTIMIZER and event.category in _ON_HOST]
    launched = {event.link: event.begin for event in events if event.category in _CALLS and event.link is not None}
    return [
        Piece(event.name, _kind_on_device(event, launched.get(event.link or 0), marks), (event.begin, event.end), True)
        for event in events
        if event.category in _ON_GPU
    ]


def _kind_on_device(event: Event, launched: float | None, optimizer: Sequence[Span]) -> str:
    if _COLLECTIVE.search(event.name):
        return COMMUNICATION
    if event.category != "kernel":
        return COPIES
    is_optimizers = launched is not None and any(begin <= launched < end for begin, end in optimizer)
    return OF_OPTIMIZER if is_optimizers else COMPUTE


def host_pieces(events: Sequence[Event]) -> list[Piece]:
    """What the operators on the CPU did, each moment of a thread for the innermost of them."""
    threads: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.category in _ON_HOST:
            threads[event.place].append(event)
    return [piece for thread in threads.values() for piece in _innermost(thread)]


@dataclass
class _Open:
    """An operator that has begun."""

    event: Event
    kind: str | None
    """None of what is no operator: a mark."""
    end: float
    is_told: bool = False


def _innermost(thread: Sequence[Event]) -> Iterator[Piece]:
    """The pieces of one thread, whose spans lie in each other."""
    stack: list[_Open] = []
    at = 0.0
    for event in thread:
        while stack and stack[-1].end <= event.begin:
            yield from _piece(stack[-1], at, stack[-1].end)
            at = max(at, stack.pop().end)
        if stack:
            yield from _piece(stack[-1], at, event.begin)
        at = event.begin
        end = min(event.end, stack[-1].end) if stack else event.end
        stack.append(_Open(event, _kind_on_host(event, stack), end))
    while stack:
        yield from _piece(stack[-1], at, stack[-1].end)
        at = max(at, stack.pop().end)


def _piece(one: _Open, begin: float, end: float) -> Iterator[Piece]:
    if one.kind is not None and end > begin:
        yield Piece(one.event.name, one.kind, (begin, end), not one.is_told)
        one.is_told = True


def _kind_on_host(event: Event, stack: Sequence[_Open]) -> str | None:
    if _COLLECTIVE.search(event.name):
        return COMMUNICATION
    if event.category != "cpu_op":
        return None  # a mark is no work: what runs in it is
    around = next((one.kind for one in reversed(stack) if one.kind is not None), None)
    if around is COMMUNICATION or any(one.event.name == OPTIMIZER for one in stack):
        return around or OF_OPTIMIZER
    return COPIES if around is COPIES or _COPY.search(event.name) else COMPUTE


@dataclass(frozen=True)
class Wait:
    """A call in which the host's thread did nothing but wait."""

    what: str
    inside: str | None
    """The operator, or our mark, that asked for it."""
    span: Span


def waits(events: Sequence[Event]) -> list[Wait]:
    """What the host waited for in the marked steps: the device, a value of it, others, the next batch."""
    found: list[Wait] = []
    stacks: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.category not in _ON_HOST | _CALLS:
            continue
        stack = stacks[event.place]
        while stack and stack[-1].end <= event.begin:
            stack.pop()
        is_outermost = not any(_is_wait(one) for one in stack)
        if _is_wait(event) and is_outermost and any(one.name == STEP for one in stack):
            found.append(Wait(event.name.removeprefix(MARK), _inside(stack), (event.begin, event.end)))
        stack.append(event)
    return found


def _is_wait(event: Event) -> bool:
    return event.name in (BATCH, END) or bool(_WAITS.search(event.name))


def _inside(stack: Sequence[Event]) -> str | None:
    return next((one.name.removeprefix(MARK) for one in reversed(stack) if one.name != STEP), None)
