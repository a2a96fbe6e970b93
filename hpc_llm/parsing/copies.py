"""Whether a step that comes again is another rank's copy of the line, or the first step of another run.

Ranks that print the same lines do so step by step, and one that lags is soon level with the others, however much else stands between
their lines; a run that begins anew goes back to the very first step, and prints each step as often as the one before did. One that goes
on from a checkpoint repeats a few steps once each, or stands behind a failure.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TypeVar

from hpc_llm.causes.tracebacks import TRACEBACK
from hpc_llm.parsing.doubt import FAILED
from hpc_llm.parsing.matches import Hit, line_at, stream_of
from hpc_llm.parsing.rules import Kind, Rule, Value
from hpc_llm.parsing.run import LogRun

_RANKS = re.compile(rb"\d{1,5}")
_NEAR = 2048
"""A step number that comes again within so many bytes is another rank's copy and no new run, whatever failed in between."""
_ENOUGH = 2
"""So many of the next steps tell: of ranks one of them comes again."""
FEW_LINES = 8
"""Among so many lines one that tells of a place is looked for again: it has no number of its own."""
_MARKS = ("grad_norm", "learning_rate")
_TOLD = ("order", "loss", *_MARKS)
_NO_NUMBER = "nan"
_LINE = re.compile(rb"(\d{1,5}):")
_LOOKED_AT = 64
"""So many of the next matches tell whether lines with the prefix of before come again."""

V = TypeVar("V")


def is_next_bar(run: LogRun, text: bytes) -> bool:
    """Whether a bar that begins behind `text`, which follows the last step of `run`, is the next run's: this one has none, and is over
    by its own word or by a traceback."""
    has_own = any(name == "elapsed_s" or name.startswith(("bar ", "begun ", "at_0 ")) for name in run.values)
    return run.has_steps and not has_own and (run.closed or TRACEBACK in text)


@dataclass
class Copies:
    """Watches the lines that were taken for copies, and knows what stands behind the one that is looked at."""

    hits: Sequence[Hit] = ()
    """All of the text at hand, in order."""
    place: int = 0
    """Where among them the line stands."""
    _run: LogRun | None = None
    _copied: set[float] = field(default_factory=set)
    """Steps of that run which were printed more than once."""
    _begun_run: LogRun | None = None
    _begun: set[tuple[Rule | None, bytes]] = field(default_factory=set)
    """Lines of the beginning of that run, each with the prefix of its rank."""
    _numbered: LogRun | None = None
    """The run before whose lines stand their numbers in the file from which they were taken."""
    _repeated: LogRun | None = None
    """The run of which another rank prints all steps once more, behind its end."""
    _second: Value | None = None
    """The number that the last second line of a step has."""
    _said_in: LogRun | None = None
    _said: deque[tuple[Mapping[str, Value], float | None]] = field(default_factory=lambda: deque(maxlen=FEW_LINES))
    """The last lines of that run which tell of a place, each with its step where that is known."""
    _failed: bool = False
    """What was printed since the last step line, in the parts of the log that were read before, tells of a failure."""

    def note(self, run: LogRun, number: float | None) -> None:
        """Another rank printed this step of the run."""
        if self._run is not run:
            self._run, self._copied = run, set()
        if number is not None:
            self._copied.add(number)

    def takes_second_line(
        self, run: LogRun, found: Hit, values: Mapping[str, Value], rules_of_step: set[Rule | None]
    ) -> bool:
        """Take a line that counts from the start of its process, where the step that is being read has a number of the whole run.

        After a checkpoint was loaded these two differ; the count of the process is never ahead.
        """
        rule, number = found.rule, values.get("step")
        if rule is None or found.format is None or not rule.counts_anew or run.over or not run.pending:
            return False
        if not isinstance(number, int) or run.last is None or number >= run.last:
            return False
        if rule in rules_of_step:
            run.learn_peaks(values if number == self._second else {})
            return number == self._second
        if rules_of_step.isdisjoint(found.format.rules):
            return False
        rules_of_step.add(rule)
        self._second = number
        run.add_to_step({name: value for name, value in values.items() if name != "step"})
        return True

    @staticmethod
    def repeats_line(found: Hit, chunk: bytes) -> bool:
        """Whether the line right above is the same, as where two ranks print it, or two outputs go into one file."""
        line = chunk.rfind(b"\n", 0, found.start) + 1
        if not line:
            return False
        above, this = line_at(chunk, line - 1), line_at(chunk, found.start)
        return _without_label(above, chunk, line - 1) == _without_label(this, chunk, found.start) != b""

    def is_of_another(self, run: LogRun, number: float | None, found: Hit, chunk: bytes) -> bool:
        """Whether the line is of another rank than those that are counted, by the prefix that stands before it.

        Where a line was written behind an unfinished one, or the launcher's labels begin or end, the same rank goes on with a prefix
        that it had not, or without the one that it had.
        """
        stream = stream_of(chunk, found.start)
        if run.stream is None or stream == run.stream:
            return False
        if number is None or run.last is None or number <= run.last or not _may_be_one(stream, run.stream):
            return True
        coming = self.hits[self.place + 1 : self.place + 1 + _LOOKED_AT]
        if any(hit.is_step and stream_of(chunk, hit.start) == run.stream for hit in coming):
            return True
        run.stream = stream
        return False

    def begins(self, run: LogRun, found: Hit, chunk: bytes) -> bool:
        """Whether a line of the beginning of a program may begin another run than `run`: it is no copy of the one above, nor the first
        such line of another rank than the one whose steps are counted, which may lag behind."""
        if self._begun_run is not run:
            self._begun_run, self._begun = run, set()
        key = (found.rule, stream_of(chunk, found.start))
        is_first = key not in self._begun
        self._begun.add(key)
        return not self.repeats_line(found, chunk) and not (is_first and self.is_of_another_rank(run, found, chunk))

    def is_of_another_rank(self, run: LogRun, found: Hit, chunk: bytes) -> bool:
        """Whether its prefix and that of the steps that are counted name two ranks."""
        stream = stream_of(chunk, found.start)
        is_named = bool(stream and run.stream) and self._numbered is not run
        return is_named and not _may_be_one(stream, run.stream or b"")

    def is_behind_end(
        self,
        run: LogRun,
        number: float | None,
        values: Mapping[str, Value],
        found: Hit,
        chunk: bytes,
        rules_of_step: set[Rule | None],
    ) -> bool:
        """Whether a step behind the end of training is one that the run has, of another rank: by its prefix, or because no program has
        begun since, as the run's did, and no other loss stands there."""
        if not run.closed or number is None or run.last is None or number > run.last:
            return False
        if found.format is None or rules_of_step.isdisjoint(found.format.rules):
            return False  # another program's
        if not self.is_of_another_rank(run, found, chunk) and self._repeated is not run:
            loss = values.get("loss")
            known = {run.first: run.losses.first, run.last: run.losses.last}.get(number, loss)
            if not run.trains or loss is None or loss != known:
                return False
            self._repeated = run
        return True

    def is_copy(
        self,
        run: LogRun,
        number: float | None,
        order: float | None,
        found: Hit,
        chunk: bytes,
        distance: int,
        has_loss: bool,
    ) -> bool:
        """Whether another rank printed this step already; `order` is its number, or its epoch, and the last step ended so many bytes before."""
        if order is not None and run.last is not None and order > run.last and self._is_numbered(run, found, chunk):
            run.stream = stream_of(chunk, found.start)
            return False
        if self.is_of_another(run, number, found, chunk):
            return True
        if found.format is not None and found.format.one_writer and has_loss and number != run.last:
            return False
        if number is None or number not in run.recent:
            return False
        if distance < _NEAR:
            return not self.begin_anew(run, number, found.rule)
        return not (
            self.has_failed(chunk, found.start - distance, found.start) or self._goes_on_from(run, number, found.rule)
        )

    def has_failed(self, chunk: bytes, since: int, until: int) -> bool:
        """Whether what was printed since the last step line tells of a failure or a restart; before the chunk, if that is where it stands."""
        return (since < 0 and self._failed) or FAILED.search(chunk, max(0, since), until) is not None

    def failed_once(self, run: LogRun, found: Hit, chunk: bytes, distance: int) -> bool:
        """Whether the run has one step alone, which ended so many bytes before, and a failure stands behind it."""
        return run.lines == 1 and self.has_failed(chunk, found.start - distance, found.start)

    def leave(
        self, chunk: bytes, since: int, run: LogRun | None = None, told: Iterable[Mapping[str, Value]] = ()
    ) -> None:
        """The chunk was read; its last step line ends at `since`, and `told` is what the last ones said if none was looked at alone."""
        self._failed = self.has_failed(chunk, since, len(chunk))
        if run is not None:
            self._turn_to(run)
            self._said.extend((_told(one), None) for one in told)

    def _turn_to(self, run: LogRun) -> None:
        if self._said_in is not run:
            self._said_in = run
            self._said.clear()

    def may_come_again(self, run: LogRun, order: Sequence[float], losses: Sequence[Value | None]) -> bool:
        """Whether one of the first lines of a chunk tells the place and the loss of one of the last before it."""
        said = (
            [(rounded(told.get("order")), told.get("loss")) for told, _ in self._said] if self._said_in is run else []
        )
        first = zip(order[:FEW_LINES], losses, strict=False)
        return any((rounded(place), _same(loss)) in said for place, loss in first)

    def _goes_on_from(self, run: LogRun, number: float, rule: Rule | None) -> bool:
        """Whether a run goes on from a checkpoint with this step, which the run before has: it prints each step once, as that one did."""
        if self._run is run and self._copied:
            return self.begin_anew(run, number, rule)
        if number == run.first == run.last:
            return False  # one step is printed by a rank after the other before the next
        numbers = [number, *islice(self._coming(rule), _ENOUGH)]
        return all(other > one for one, other in pairwise(numbers))

    def says_again(self, run: LogRun, found: Hit, values: Mapping[str, Value]) -> bool:
        """Whether a line that tells of a place in an epoch is another rank's copy: it says what one of the last lines said."""
        if not _tells_a_place(found, values):
            return False
        self._turn_to(run)
        told, number = _told(values), _number_of(values)
        tells = self._tell_apart(told)
        if tells and any(told == other and (None in (number, at) or number == at) for other, at in self._said):
            return True
        return bool(self._said) and _is_rounded(told, self._said[-1][0])

    def opened(self, run: LogRun, found: Hit, values: Mapping[str, Value]) -> None:
        """The line was taken as a step of the run."""
        self._turn_to(run)
        if _tells_a_place(found, values):
            self._said.append((_told(values), _number_of(values)))

    def _tell_apart(self, told: Mapping[str, Value]) -> bool:
        """Whether lines differ from step to step in more than their loss: one that does not may say of the next step what it said of the last,
        as where a loss has become 0."""
        marks = [tuple(other.get(name) for name in _MARKS) for other, _ in self._said]
        is_usual = all(told[name] not in (0, _NO_NUMBER) for name in ("loss", *_MARKS) if name in told)
        return is_usual and len(set(marks)) == len(marks) and ("grad_norm" in told or len(marks) > 1)

    def _is_numbered(self, run: LogRun, found: Hit, chunk: bytes) -> bool:
        """Whether what stands before the lines is their number in a file, as `grep -n` writes it: each once, and always a larger one."""
        if run.lines == 1 and run.stream and self._numbered is not run:
            coming = (hit.start for hit in self.hits[self.place + 1 : self.place + 1 + _LOOKED_AT] if hit.is_step)
            numbers = [
                _LINE.fullmatch(one) for one in (run.stream, *(stream_of(chunk, at) for at in (found.start, *coming)))
            ]
            known = [int(one[1]) for one in numbers if one is not None]
            if len(known) == len(numbers) > 2 and all(one < other for one, other in pairwise(known)):
                self._numbered = run
        return self._numbered is run

    def begin_anew(self, run: LogRun, number: float, rule: Rule | None) -> bool:
        """Whether the line, of a step that the run has already, is the first one of another run."""
        if number != run.first or number == run.last:
            return False
        numbers = [number, *self._coming(rule)]
        if self._run is run and self._copied:
            return len(numbers) > 1 and numbers[1] == number
        return all(other > one or (other == run.first and other < one) for one, other in pairwise(numbers))

    def _coming(self, rule: Rule | None) -> Iterator[float]:
        """The numbers of the step lines behind it, up to where a program begins."""
        yield from _numbers(self.hits[self.place + 1 :], rule)


def _tells_a_place(found: Hit, values: Mapping[str, Value]) -> bool:
    """Whether the line says a loss of a place in an epoch, and may stand there once more."""
    owner = found.format
    return owner is not None and not owner.one_writer and owner.one_loss and "order" in values and "loss" in values


def _told(values: Mapping[str, Value]) -> dict[str, Value]:
    """What tells lines apart."""
    return {name: _same(values[name]) for name in _TOLD if name in values}


def _same(value: V) -> V | str:
    """The value as it is compared: NaN is not equal to itself, and a copy says NaN, too."""
    return value if value == value else _NO_NUMBER


def _number_of(values: Mapping[str, Value]) -> float | None:
    step = values.get("clock_step", values.get("step"))
    return float(step) if isinstance(step, (int, float)) else None


def rounded(order: object) -> float | None:
    """An epoch with the two digits to which the Trainer rounds what it prints; programs that print its lines themselves round less."""
    return round(float(order), 2) if isinstance(order, (int, float)) and math.isfinite(order) else None


def _is_rounded(told: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether two lines say the same, with one epoch as it is and the same one rounded."""
    order, before = told.get("order"), other.get("order")
    return (
        order != before
        and {**told, "order": None} == {**other, "order": None}
        and rounded(order) == rounded(before) in (order, before)
    )


def _without_label(line: bytes, chunk: bytes, position: int) -> bytes:
    return line.strip().removeprefix(stream_of(chunk, position)).strip()


def _may_be_one(stream: bytes, other: bytes) -> bool:
    """Whether two prefixes may be of one rank: one is none, or both end with the same number.

    >>> _may_be_one(b"", b"0:"), _may_be_one(b"[rank0]:", b"0:"), _may_be_one(b"[rank1]:", b"[rank0]:")
    (True, True, False)
    """
    numbers = [_RANKS.findall(one)[-1:] for one in (stream, other)]
    return not stream or not other or numbers[0] == numbers[1]


def _numbers(hits: Iterable[Hit], rule: Rule | None) -> Iterator[float]:
    for hit in hits:
        if hit.rule is None or hit.match is None or hit.rule.kind in (Kind.START, Kind.SETUP, Kind.END):
            return
        if hit.rule is rule:
            step = (hit.rule.values(hit.match) or {}).get("step")
            if isinstance(step, int):
                yield float(step)
