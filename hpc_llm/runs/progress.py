"""What the steps in a steps.jsonl say of a run: how far it has come, and how fast. All that tell a rate of a run without a result
take it from here."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpc_llm.records import metrics
from hpc_llm.records.agreement import contradiction_in, tokens_of_a_step, trains, why_no_loss
from hpc_llm.records.comparing import agrees
from hpc_llm.records.files import json_object, open_regular, read_json_lines
from hpc_llm.records.possible import figure_of, is_possible
from hpc_llm.runs.fields import Fields

_LAST_LINES_BYTES = 2048
_SEEN_BYTES = 4 << 20
"""About 20 000 steps: what `status`, which may be asked every few seconds, reads of a file at most, its end."""
_SEEN_LINES = 100_000


@dataclass
class Steps:
    """The steps of the last try that a file tells of, added one by one."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    """By its short names."""
    first: int | None = None
    last: int | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    peak_allocated_bytes: int | None = None
    measured: array[float] = field(default_factory=lambda: array("d"))
    """Seconds of those behind the warm-up."""
    warm: array[float] = field(default_factory=lambda: array("d"))
    """Seconds of the others."""
    contradiction: str | None = None
    """Why they give no figure but the last step."""
    began_at: float | None = None
    """Unix time at which the first one began."""
    _tokens: float | None = None
    _row: Mapping[str, Any] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take the line of a step into account."""
        number = int(row["step"])
        self.contradiction = self.contradiction or self._why_not(number, row)
        self._take(number, row)

    def is_replaced_by(self, row: Mapping[str, Any]) -> bool:
        """Whether that line is of another try that goes on in the same file: it begins again, and later."""
        if self.last is None or row["step"] > self.last:
            return False
        began, ended = Fields(row).moment("time"), self.ended_at
        return began is not None and ended is not None and began > ended

    @property
    def told(self) -> str | None:
        """A clause on why they give no figure."""
        return f"its steps.jsonl gives no rate: {self.contradiction}" if self.contradiction else None

    @property
    def ended_at(self) -> float | None:
        """Unix time at which the last one ended."""
        return Fields(self._row).moment("time")

    @property
    def step_time_s(self) -> float | None:
        """Mean of the measured steps."""
        return None if self.contradiction else metrics.mean(self.measured)

    @property
    def tokens(self) -> float | None:
        """Tokens of one step over all ranks: by the plan, or where that does not say it, by the steps."""
        return (tokens_of_a_step(self.plan) or self._tokens) if trains(self.plan) else None

    @property
    def tokens_per_second(self) -> float | None:
        """Over all measured steps, as in a result; None while only warm-up steps are there."""
        seconds, tokens = self.step_time_s, self.tokens
        found = tokens / seconds if tokens and seconds else None
        return found if is_possible("tokens_per_second", found) else None

    def _take(self, number: int, row: Mapping[str, Any]) -> None:
        loss, peak, seconds = (figure_of(row, name) for name in ("loss", "peak_allocated_bytes", "step_time_s"))
        if self.first is None:
            self.first, ended = number, Fields(row).moment("time")
            self.began_at = None if ended is None else ended - (seconds or 0.0)
        self.last, self._row = number, row
        if loss is not None:
            self.loss_first = loss if self.loss_first is None else self.loss_first
            self.loss_last = loss
        if peak is not None:
            self.peak_allocated_bytes = max(self.peak_allocated_bytes or 0, int(peak))
        if seconds:
            (self.warm if row.get("warmup") else self.measured).append(seconds)
        self._tokens = _tokens_of(row) or self._tokens

    def _why_not(self, number: int, row: Mapping[str, Any]) -> str | None:
        planned, loss = self.plan.get("steps"), figure_of(row, "loss")
        if self.last is None and (why := contradiction_in(self.plan)):
            return why
        if self.last is not None and number != self.last + 1:
            return f"step {number} stands behind step {self.last}"
        if isinstance(planned, int) and 0 < planned < number:
            return f"step {number} is there, {planned} were planned"
        if why := self._why_not_warm(number, row.get("warmup")):
            return why
        if (why := self._why_not_rate(number, row)) is not None:
            return why
        why = None if loss is None else why_no_loss(self.plan, loss)
        return f"the loss of step {number} {why}" if why else None

    def _why_not_rate(self, number: int, row: Mapping[str, Any]) -> str | None:
        said, tokens = _tokens_of(row), self.tokens
        if said and tokens and not agrees(said, tokens):
            return f"step {number} has {said:.7g} tokens by its rate and its time, and a batch has {tokens:g}"
        return None

    def _why_not_warm(self, number: int, warm: object) -> str | None:
        """Warm-up steps are the first of a try, as many as the plan says."""
        if warm is None:
            return None
        if not isinstance(warm, bool):
            return f"step {number} does not say whether it is one of the warm-up"
        planned, begun = figure_of(self.plan, "warmup_steps"), self.first or number
        if planned is None:
            return f"step {number} is one of the warm-up, behind one that is none" if warm and self.measured else None
        return (
            None
            if warm == (number < begun + planned)
            else (f"step {number} is {'one' if warm else 'none'} of the warm-up, which has {planned:g} steps")
        )


def read_steps(path: Path, plan: Mapping[str, Any] | None = None) -> Steps:
    """The steps of a file; none where there is none. A line still being written is left out."""
    steps = Steps(plan or {})
    for row in read_json_lines(path):
        if is_possible("step", row.get("step")):
            steps = Steps(steps.plan) if steps.is_replaced_by(row) else steps
            steps.add(row)
    return steps


@dataclass(frozen=True)
class Progress:
    step: int | None = None
    tokens_per_second: float | None = None
    """Over all measured steps so far, as in the result, of very many over the last ones; None while only warm-up steps are there."""
    contradiction: str | None = None
    """A clause on why the steps give no rate."""


def read_progress(steps: Path, rate: bool = True, plan: Mapping[str, Any] | None = None) -> Progress:
    """Progress by the lines of `steps`; a line still being written is left out. Without `rate` only the step."""
    if not rate:
        last = next(filter(None, map(json_object, reversed(last_lines(steps)))), None)
        return Progress(Fields(last or {}).whole("step", least=0))
    found = read_steps(steps, plan) if _size(steps) <= _SEEN_BYTES else _read_end(steps, plan or {})
    return Progress(found.last, found.tokens_per_second, found.told)


def _read_end(path: Path, plan: Mapping[str, Any]) -> Steps:
    """The last steps of a long file, which are none of the warm-up."""
    steps = Steps({key: value for key, value in plan.items() if key != "warmup_steps"})
    for line in last_lines(path, _SEEN_BYTES)[1:]:
        row = json_object(line)
        if row is not None and is_possible("step", row.get("step")):
            steps = Steps(steps.plan) if steps.is_replaced_by(row) else steps
            steps.add(row)
    return steps


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@dataclass(frozen=True)
class Pace:
    """How fast a run came how far."""

    step: int | None
    """The last one that it made."""
    step_time_s: float | None
    """Mean over the measured steps, or of all where none was measured."""
    ended_at: float | None
    """Unix time at which the last step ended."""
    began_at: float | None = None
    """Unix time at which its first step began."""
    before: int = 0
    """Steps of the training that others had made, from whose checkpoint it went on."""

    def start_up_s(self, job_began: float | None) -> float | None:
        """Seconds from the start of its job, in Unix time, to its first step; None where they are not known to be one job's."""
        if job_began is None or self.began_at is None or not job_began <= self.began_at <= (self.ended_at or math.inf):
            return None
        return self.began_at - job_began


def read_pace(steps: Path, plan: Mapping[str, Any] | None = None) -> Pace | None:
    """The pace by the lines of `steps`; None where they hold no step."""
    found = read_steps(steps, plan)
    if found.last is None:
        return None
    seconds = None if found.contradiction else metrics.mean(found.measured or found.warm)
    return Pace(found.last, seconds, found.ended_at, found.began_at, max((found.first or 1) - 1, 0))


def _tokens_of(row: Mapping[str, Any]) -> float | None:
    """Tokens of a step by its own rate."""
    rate, seconds = figure_of(row, "tokens_per_second"), figure_of(row, "step_time_s")
    return rate * seconds if rate and seconds else None


def last_lines(path: Path, size: int = _LAST_LINES_BYTES) -> list[bytes]:
    """The end of a file by lines, of which the first may be cut, and the last is empty where a newline ends the file."""
    try:
        file = open_regular(path)
        if file is None:
            return []
        with file:
            file.seek(max(0, file.seek(0, 2) - size))
            return file.read(size).rsplit(b"\n", _SEEN_LINES)
    except OSError:
        return []
