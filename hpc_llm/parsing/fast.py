"""The fast lane: most of a long log is step lines in rising order, whose numbers can be taken by the chunk.

A chunk is taken if it goes on exactly like the text before, in which every line was looked at: the next steps, as far
apart, as many lines to each, the last ones of the same shape, so that no line is left over that could say something else.
Or it is taken because it holds no text that any other rule asks for. All other chunks go to the careful lane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import le, lt

from hpc_llm.causes.cause import TRAINED_ON
from hpc_llm.parsing import facts
from hpc_llm.parsing.copies import FEW_LINES, rounded
from hpc_llm.parsing.held import SETTINGS
from hpc_llm.parsing.matches import BROKEN, Hit
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import LARGEST, Convert, Kind, Rule, Value, floats, number
from hpc_llm.parsing.run import MEASURED, PEAKS
from hpc_llm.parsing.sample import LossAt
from hpc_llm.parsing.work import VARIES
from hpc_llm.text import sources

CHUNK = 1 << 18
"""Bytes that are taken at once."""
FEWEST_STEPS = 64
"""A chunk with fewer step lines than this is worth the careful lane."""

LESSONS = 16
"""So often the lane looks whether a log is regular before it takes it for one that is not."""

SHAPE = 48
"""Bytes at the beginning of a line that tell lines of one kind, their digits left out."""


@dataclass(frozen=True)
class Steps:
    """The step lines of a chunk."""

    order: Sequence[float]
    """Their numbers or epochs."""
    columns: Mapping[str, list[float]]
    """The measurements of each column, those lines left out that print none. Of losses that are all finite, the first and
    the last may be all."""
    facts: Mapping[str, Value]
    """All that the last step line says."""
    losses: Sequence[bytes] = ()
    """The loss that each of them prints, as text, empty where it prints none: of the most nobody asks for the number."""
    loss_of: Convert = number
    numbered: bool = True
    """Whether `order` are step numbers."""

    @property
    def first_losses(self) -> list[Value | None]:
        """By which copies of the lines before are known; none where their numbers tell."""
        return [] if self.numbered else [self.loss_of(text) if text else None for text in self.losses[:FEW_LINES]]

    def loss_at(self, place: int) -> LossAt:
        """The step at that place."""
        text = self.losses[place] if self.losses else b""
        loss = self.loss_of(text) if text else None
        step = int(self.order[place]) if self.numbered else None
        return LossAt(step, float(loss) if isinstance(loss, (int, float)) else None)


class FastLane:
    """Takes the step lines of one program."""

    def __init__(
        self,
        rule: Rule,
        step_rule: Rule,
        order: str,
        wanted: Iterable[str],
        other_texts: Iterable[bytes],
        below: Iterable[tuple[LineFormat, Rule]],
        exact: bool,
    ) -> None:
        self._rule, self._step_rule = rule, step_rule
        self._order = order
        self._wanted = frozenset(wanted)
        self._other_texts = tuple(other_texts)
        self._below = tuple(below)
        self._exact = exact
        self._names = [name for name, _ in rule.columns]
        self._alone: dict[str, re.Pattern[bytes]] = {}
        self._lines_a_step = 0
        self._spacing = 0
        self._shapes: list[bytes] = []
        self._lessons = LESSONS

    @staticmethod
    def for_formats(formats: Sequence[LineFormat]) -> FastLane | None:
        """The lane for a log with the output of these programs; None where it must be read with care throughout."""
        owners = [f for f in formats if not f.companion]
        step_rules = [(f, r) for f in owners for r in f.rules if r.kind is Kind.STEP]
        if len(step_rules) != 1:
            return None
        owner, step_rule = step_rules[0]
        rule = owner.bulk or step_rule
        names = dict(rule.columns)
        order = next((name for name in ("order", "step") if name in names), None)
        # Where the usual step line is known, MORE lines are there for unusual ones only.
        kinds = set(Kind) - {Kind.MORE} if owner.bulk else set(Kind)
        others = [r.literal for f in owners for r in f.rules if r is not step_rule and r.kind in kinds]
        if rule.decode is not None or rule.literal is None or order is None or None in others:
            return None
        # Peaks of a library below count where the program prints none: then its lines must be read, too.
        if "peak_allocated_bytes" not in names and any(f.companion for f in formats):
            return None
        wanted = {"loss", *PEAKS, *(MEASURED if owner.averages else ())} & names.keys()
        beside = [r.literal for f in formats if f.companion for r in f.rules if _is_of_run(r)]
        of_job = (r.literal for r in facts.RULES)
        texts = (facts.CELL.strip(), facts.END_OF_JOB, *filter(None, (*of_job, *others, *beside)))
        below = [(f, r) for f in formats if f.companion for r in f.rules if r.kind is Kind.STEP]
        return FastLane(rule, step_rule, order, wanted, texts, below, exact=owner.bulk is not None)

    @property
    def mark(self) -> bytes:
        """Text that stands in each step line."""
        return self._rule.literal or b""

    def last_steps(self, chunk: bytes) -> tuple[int, list[int]]:
        """Where the text begins that may say how the run ended, and the last step lines in it."""
        starts: list[int] = []
        end = len(chunk)
        while len(starts) <= TRAINED_ON and (mark := chunk.rfind(self.mark, 0, end)) >= 0:
            end = chunk.rfind(b"\n", 0, mark) + 1
            starts.append(end)
        return end if len(starts) > TRAINED_ON else 0, starts[::-1]

    def last_below(self, chunk: bytes) -> list[Hit]:
        """The last line of each kind that a library below prints of a step: what it says of the run holds until the next one. The one
        before the last step, and the one behind it, which may be of another run."""
        last = chunk.rfind(self.mark)
        found = [_last_of(chunk, *one, end) for one in self._below for end in (last, len(chunk))]
        by_place = {one.start: one for one in found if one is not None}
        return [by_place[start] for start in sorted(by_place)]

    def read(self, chunk: bytes, last: float | None) -> Steps | None:
        """The steps of a chunk, which follow the step `last`; None where it holds anything else that matters."""
        if last is None or self._has_decimal_commas(chunk) or BROKEN.search(chunk):
            return None
        steps = self._regular(chunk, last)
        if steps is None:
            steps = self._searched(chunk, last)
            if steps is not None:
                self._learn(chunk)
        return steps

    def _has_decimal_commas(self, chunk: bytes) -> bool:
        """Whether the first step line has, and so all: what its points mean is for the careful lane to say."""
        match = self._rule.pattern.search(chunk)
        return match is not None and b"," in match[0] and self._rule.leaves_commas(match)

    def _regular(self, chunk: bytes, last: float) -> Steps | None:
        """The steps, if the chunk goes on like the text before: the same lines around each, steps as far apart."""
        if not self._lines_a_step:
            return None
        # Counting lines is a hundred times as fast as looking at them, and a line too many or too few may say anything.
        steps, rest = divmod(chunk.count(b"\n"), self._lines_a_step)
        if rest or steps < FEWEST_STEPS:
            return None
        if _shapes_after(chunk, self.mark) != self._shapes:
            return None
        order = self._counted(chunk, last, steps) if self._order == "step" else self._ordered(chunk, last, steps)
        has_losses = "loss" in self._wanted
        losses = self._alone["loss"].findall(chunk) if order and has_losses else []
        if order is None or (has_losses and len(losses) != steps) or self._may_hold_copies(order, losses):
            return None
        if not self._has_equal_steps(chunk, steps):
            return None
        columns = {name: self._column(chunk, name, steps) for name in self._wanted - {"loss"}}
        if any(values is None for values in columns.values()):
            return None
        return self._steps(order, {**columns, "loss": self._ends(losses)}, losses, chunk)

    def _steps(
        self, order: Sequence[float], columns: Mapping[str, list[float] | None], losses: Sequence[bytes], chunk: bytes
    ) -> Steps:
        known = {name: values for name, values in columns.items() if values}
        convert = dict(self._rule.columns).get("loss", number)
        return Steps(order, known, self._facts(chunk), losses, convert, self._order == "step")

    def _ends(self, losses: Sequence[bytes]) -> list[float]:
        """The losses of a regular chunk: where all are finite, the first and the last say all that a row needs."""
        if losses and b"n" not in b"".join(losses).lower():
            losses = [losses[0], losses[-1]]
        return self._convert("loss", losses) if losses else []

    def _counted(self, chunk: bytes, last: float, steps: int) -> Sequence[float] | None:
        """The numbers of the steps, if the first and the last one are what they must be."""
        # Between a right first and a right last step as many lines as there must be: taking each number would tell no more.
        first = last + self._spacing
        end = first + self._spacing * steps
        match = self._rule.pattern.search(chunk)
        if match is None or number(match["step"]) != first or self._facts(chunk).get("step") != end - self._spacing:
            return None
        return range(int(first), int(end), self._spacing)

    def _ordered(self, chunk: bytes, last: float, steps: int) -> Sequence[float] | None:
        """The epochs of the steps, if they do not fall."""
        texts = self._alone[self._order].findall(chunk)
        order = floats(number, texts) if len(texts) == steps else []
        return order if order and all(map(le, chain((last,), order), order)) and order[-1] < LARGEST else None

    def _may_hold_copies(self, order: Sequence[float], losses: Sequence[bytes]) -> bool:
        """Whether two lines tell the same of one place, where lines have no number: only the careful lane knows copies."""
        if self._order == "step":
            return False
        pairs = list(zip(map(rounded, order), losses, strict=False))
        if len(set(pairs)) == len(pairs):
            return False
        before: dict[tuple[float | None, bytes], int] = {}
        for place, pair in enumerate(pairs):
            if place - before.get(pair, place - FEW_LINES - 1) <= FEW_LINES:
                return True
            before[pair] = place
        return False

    def told(self, chunk: bytes) -> list[Mapping[str, Value]]:
        """What the last step lines say, where lines have no number by which another rank's copies are known."""
        found: list[Mapping[str, Value]] = []
        end = len(chunk) if self._order != "step" else 0
        while len(found) < FEW_LINES and (mark := chunk.rfind(self.mark, 0, end)) >= 0:
            end = chunk.rfind(b"\n", 0, mark) + 1
            if match := self._step_rule.pattern.search(chunk, end):
                found.append(self._step_rule.values(match) or {})
        return found[::-1]

    def _facts(self, chunk: bytes) -> Mapping[str, Value]:
        """What the last step line says."""
        begin = chunk.rfind(b"\n", 0, chunk.rfind(self.mark)) + 1
        match = self._rule.pattern.search(chunk, begin)
        return self._rule.values(match) or {} if match else {}

    def _learn(self, chunk: bytes) -> None:
        """See how regular the log is, from a chunk without anything else that matters."""
        self._lines_a_step = self._spacing = 0
        if self._lessons == 0:
            return
        self._lessons -= 1
        found = self._rule.pattern.findall(chunk)
        lines = chunk.count(b"\n")
        if len(found) < 2 or lines % len(found) or chunk.count(self.mark) != len(found):
            return
        # A number found on its own must be that of the step line in every line: elsewhere the same words may stand, too.
        columns = self._by_name(found)
        needed = self._wanted | {self._order}
        self._alone = {name: self._rule.alone[name] for name in needed if name in self._rule.alone}
        if self._alone.keys() != needed or any(tuple(self._alone[n].findall(chunk)) != columns[n] for n in needed):
            return
        if self._order == "step":
            before, after = (number(text) or 0 for text in columns["step"][-2:])
            self._spacing = int(after - before)
        if self._order != "step" or self._spacing > 0:
            self._lines_a_step = lines // len(found)
            self._shapes = _shapes_after(chunk, self.mark)

    def _column(self, chunk: bytes, name: str, steps: int) -> list[float] | None:
        pattern = self._alone[name]
        if name in PEAKS:
            same = self._same_in_all(chunk, pattern, steps)
            if same is not None:
                return self._convert(name, (same,))
        texts = pattern.findall(chunk)
        if len(texts) != steps:
            return None
        return self._convert(name, texts)

    def _has_equal_steps(self, chunk: bytes, steps: int) -> bool:
        """Whether all step lines print the same amount of work."""
        patterns = [self._rule.alone[name] for name in VARIES if name in self._rule.alone]
        return all(self._same_in_all(chunk, pattern, steps) is not None for pattern in patterns)

    def _same_in_all(self, chunk: bytes, pattern: re.Pattern[bytes], steps: int) -> bytes | None:
        """The value, if all step lines print the same one: counting is faster than taking."""
        match = pattern.search(chunk)
        if match is None or chunk.count(chunk[match.start() : match.end() + 1]) != steps:
            return None
        return match[1]

    def _convert(self, name: str, texts: Sequence[bytes]) -> list[float]:
        """The numbers; a line that prints none is left out."""
        if name in PEAKS:  # few different ones, and only the largest counts
            texts = tuple(set(texts))
        return floats(dict(self._rule.columns)[name], texts)

    def _by_name(self, found: Sequence[tuple[bytes, ...]]) -> dict[str, tuple[bytes, ...]]:
        """The texts of each column; where a column has an older name, too, those of the one that is printed."""
        columns: dict[str, tuple[bytes, ...]] = {}
        for name, texts in zip(self._names, zip(*found, strict=True), strict=True):
            if name not in columns or any(texts):
                columns[name] = texts
        return columns

    def _searched(self, chunk: bytes, last: float) -> Steps | None:
        """The steps, if they rise and none of the texts is in the chunk that other rules ask for."""
        if any(text in chunk for text in self._other_texts):
            return None  # something else may stand here: the order of the lines matters, and only the careful lane keeps it
        found = self._rule.pattern.findall(chunk)
        if len(found) < FEWEST_STEPS or (self._exact and chunk.count(self.mark) != len(found)):
            return None
        columns = self._by_name(found)
        by_step = self._order == "step"
        try:
            order: list[float] = list(map(int if by_step else float, columns[self._order]))
        except ValueError:
            return None
        if not all(map(lt if by_step else le, chain((last,), order), order)) or order[-1] > LARGEST:
            return None
        if any(len(set(columns[name])) > 1 for name in VARIES if name in columns):
            return None  # steps of unequal work are counted one by one
        if self._may_hold_copies(order, columns.get("loss", ())):
            return None
        values = {name: self._convert(name, columns[name]) for name in self._wanted}
        return self._steps(order, values, columns["loss"] if "loss" in self._wanted else (), chunk)


def end_of_chunk(text: bytes, begin: int, size: int, lane: FastLane | None) -> int:
    """Where a chunk of about this size that begins at `begin` ends; `begin` itself where more text is needed to say.

    On the fast lane it ends before a step line, so that it holds whole steps.
    """
    if len(text) - begin < size:
        return begin
    end = sources.end_of_lines(text, begin, begin + size)
    if end == begin:
        return sources.end_of_lines(text, begin, len(text))
    if lane is None:
        return end
    mark = text.rfind(lane.mark, begin, end)
    start = text.rfind(b"\n", begin, mark) + 1 if mark > begin else 0
    return start if start > begin else end


def _last_of(chunk: bytes, owner: LineFormat, rule: Rule, end: int) -> Hit | None:
    """The last line of this kind before `end`."""
    while rule.literal is not None and (mark := chunk.rfind(rule.literal, 0, end)) >= 0:
        end, end_of_line = chunk.rfind(b"\n", 0, mark) + 1, chunk.find(b"\n", mark)
        match = rule.pattern.search(chunk, end, end_of_line if end_of_line >= 0 else len(chunk))
        if match is not None:
            return Hit(match.start(), match.end(), owner.precedence, owner, rule, match)
    return None


def _is_of_run(rule: Rule) -> bool:
    """Whether the line of a library below the program tells runs apart, or says a setting of one."""
    says_settings = rule.kind is Kind.RUN and any(name in SETTINGS for name, _ in rule.columns)
    return says_settings or rule.kind in (Kind.START, Kind.SETUP)


def _shapes_after(chunk: bytes, mark: bytes) -> list[bytes]:
    """How the lines below the last step line begin: where a run ends, other lines stand in their place."""
    lines = chunk[chunk.rfind(mark) :].split(b"\n")[1:-1]
    return [line[:SHAPE].translate(None, b"0123456789.") for line in lines]
