"""How a run ended, as far as the messages in its log say.

Causes are data: a pattern, the outcome it stands for and how it reads in a table. Some can be survived (a program may
catch an exception or an out-of-memory error and train on), so they count only where little training follows them. What
the scheduler says is final.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpc_llm.run import Outcome

SURVIVED_AFTER = 8
"""So many training steps after a message say that the program went on in spite of it."""

REASON_LENGTH = 200


@dataclass(frozen=True)
class Cause:
    """One way to end."""

    outcome: Outcome
    weight: int
    """Among the messages of one run the heaviest decides; of equally heavy ones the first."""
    final: bool
    """Whether it is the end of the job: steps after it are those of another."""
    literal: bytes
    """Without this text the pattern cannot match: a quick way to skip most of a log."""
    source: str
    """The pattern, compiled when it is needed."""
    text: str
    """What a table says; `{0}` is the first group of the pattern that matched, `{line}` the whole line."""

    @functools.cached_property
    def pattern(self) -> re.Pattern[bytes]:
        return re.compile(self.source.encode(), re.MULTILINE)


@dataclass
class Signal:
    """A cause that was seen, and how much training came after it."""

    outcome: Outcome
    weight: int
    final: bool
    reason: str
    steps_after: int = 0
    before_end: bool = False
    """Training came to its end after the message."""

    @property
    def counts(self) -> bool:
        return self.final or (self.steps_after < SURVIVED_AFTER and not self.before_end)


def _cause(outcome: Outcome, weight: int, literal: str, pattern: str, text: str, *, final: bool = False) -> Cause:
    return Cause(outcome, weight, final, literal.encode(), pattern, text)


END_OF_JOB = b"CANCELLED AT "
"""Is in every final message of the scheduler."""
_AT = r"CANCELLED AT (\S{1,40})"
_OOM_KILL = r"Detected \d+ oom[-_]kill event|oom[-_]kill(?:er|:)|killed by the cgroup out-of-memory"
# Without a traceback only these are taken for the end of a program: others write lines like them and go on.
_BARE_ERROR = (
    "(?:Runtime|Assertion|Import|ModuleNotFound|FileNotFound|Permission|Syntax|Indentation|Value|Type|Key|OS)Error"
)
_EXIT_CODE = "a process ended with exit code {0}"

CAUSES: tuple[Cause, ...] = (
    _cause(Outcome.OOM_DEVICE, 90, " out of memory", r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory", "{line}"),
    _cause(Outcome.OOM_DEVICE, 89, "OutOfMemoryError", r"OutOfMemoryError\b", "{line}"),
    _cause(Outcome.OOM_DEVICE, 88, "_STATUS_ALLOC_FAILED", r"CU\w{3,5}_STATUS_ALLOC_FAILED", "{line}"),
    _cause(Outcome.OOM_DEVICE, 88, "ErrorOutOfMemory", r"hipErrorOutOfMemory", "{line}"),
    _cause(Outcome.OOM_DEVICE, 88, "ErrorMemoryAllocation", r"cudaErrorMemoryAllocation", "{line}"),
    _cause(Outcome.OOM_HOST, 80, "kill", _OOM_KILL, "{line}"),
    _cause(Outcome.OOM_HOST, 79, ": Out Of Memory", r"srun: error: [^\n]{0,80}: Out Of Memory", "{line}"),
    _cause(
        Outcome.OOM_HOST, 78, "CPUAllocator", r"DefaultCPUAllocator: (?:not enough|can't allocate) memory", "{line}"
    ),
    _cause(Outcome.OOM_HOST, 77, "MemoryError", r"^[^\n]{0,60}\bMemoryError\b", "{line}"),
    _cause(
        Outcome.TIMEOUT, 70, "TIME LIMIT", rf"{_AT} DUE TO TIME LIMIT", "stopped at the time limit at {0}", final=True
    ),
    _cause(Outcome.PREEMPTED, 70, "PREEMPTION", rf"{_AT} DUE TO PREEMPTION", "preempted at {0}", final=True),
    _cause(Outcome.NODE_FAIL, 70, "NODE FAILURE", rf"{_AT} DUE TO NODE FAILURE", "a node failed at {0}", final=True),
    _cause(Outcome.CANCELLED, 68, "JOB REQUEUE", rf"{_AT} DUE TO JOB REQUEUE", "requeued at {0}", final=True),
    _cause(
        Outcome.CANCELLED, 50, "CANCELLED AT", rf"\bJOB \S+ ON \S+ {_AT}(?! DUE TO)", "cancelled at {0}", final=True
    ),
    # srun writes this when a task failed, too: the weakest evidence of all.
    _cause(
        Outcome.CANCELLED,
        20,
        "CANCELLED AT",
        rf"\bSTEP \S+ ON \S+ {_AT}(?! DUE TO)",
        "job step cancelled at {0}",
        final=True,
    ),
    _cause(Outcome.FAILED, 45, "egmentation fault", r"\b[Ss]egmentation fault\b", "{line}"),
    _cause(Outcome.FAILED, 45, "us error", r"\b[Bb]us error\b", "{line}"),
    _cause(Outcome.FAILED, 40, "Killed", r"^\S{1,200}: line \d+: +\d+ Killed\b", "{line}"),
    _cause(Outcome.FAILED, 40, "return code = ", r"exits with return code = (-?[1-9]\d*)", _EXIT_CODE),
    _cause(Outcome.FAILED, 40, "exitcode", r"exitcode +: (-?[1-9]\d*) ", _EXIT_CODE),
    _cause(
        Outcome.FAILED, 40, "Exited with", r"^srun: error: [^\n]{1,120}: Exited with exit code ([1-9]\d*)", _EXIT_CODE
    ),
    _cause(Outcome.FAILED, 44, "Watchdog caught collective", r"Watchdog caught collective operation timeout", "{line}"),
    _cause(Outcome.FAILED, 38, "failed to listen on any", r"server socket has failed to listen on any", "{line}"),
    _cause(Outcome.FAILED, 35, "Error: ", rf"^(?:\[rank\d+\]: )?{_BARE_ERROR}: \S", "{line}"),
    _cause(Outcome.FAILED, 15, "Lmod has detected", r"Lmod has detected the following error: \S", "{line}"),
)

TRACEBACK = b"Traceback (most recent call last)"
_EXCEPTION = re.compile(
    rb"^(?:[^\n]{0,60}?[\]>:] ?)?"  # the prefix of a rank or a launcher
    rb"((?:[A-Za-z_]\w*\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Warning|Exit|Timeout)|[A-Z]\w{0,60}Failed))"
    rb"(?::[ ]?([^\n]{0,300}))?$",
    re.MULTILINE,
)
_EXCEPTION_WEIGHT = 55
_BY_SIGNAL = (b"SignalException", b"KeyboardInterrupt")
_SEARCHED_AFTER_TRACEBACK = 1 << 16


def signals_in(text: bytes) -> Iterator[tuple[int, Signal]]:
    """The signals in `text` with their positions, not in order."""
    for cause in CAUSES:
        if cause.literal not in text:
            continue
        for match in cause.pattern.finditer(text):
            yield match.start(), Signal(cause.outcome, cause.weight, cause.final, _reason(cause, match, text))
    yield from _exceptions_in(text)


def _reason(cause: Cause, match: re.Match[bytes], text: bytes) -> str:
    first = match[1] if match.re.groups else b""
    return cause.text.format(
        (first or b"").decode("utf-8", "replace").rstrip("*. "), line=_line_at(text, match.start())
    )


def _line_at(text: bytes, position: int) -> str:
    begin = text.rfind(b"\n", 0, position) + 1
    end = text.find(b"\n", position)
    return text[begin : end if end >= 0 else len(text)][:REASON_LENGTH].decode("utf-8", "replace").strip()


def _exceptions_in(text: bytes) -> Iterator[tuple[int, Signal]]:
    """The exception that ends each traceback."""
    start = text.find(TRACEBACK)
    while start >= 0:
        following = text.find(TRACEBACK, start + 1)
        limit = start + _SEARCHED_AFTER_TRACEBACK
        match = _EXCEPTION.search(text, start, min(following, limit) if following >= 0 else limit)
        if match:
            name, message = match[1], (match[2] or b"").strip()
            reason = (name + b": " + message if message else name)[:REASON_LENGTH].decode("utf-8", "replace")
            weight = _EXCEPTION_WEIGHT if not name.endswith(_BY_SIGNAL) else 10
            yield match.start(), Signal(Outcome.FAILED, weight, False, reason)
        start = following


def decide(signals: Sequence[Signal]) -> Signal | None:
    """The signal that says how the run ended."""
    counting = [s for s in signals if s.counts]
    return max(counting, key=lambda s: s.weight) if counting else None
