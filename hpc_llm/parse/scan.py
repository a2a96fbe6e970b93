"""From blocks of text to runs.

Two lanes give the same result. The careful lane looks for every rule of every format in the log and takes the lines in
order. Most of a long log is nothing but step lines in rising order: there the fast lane takes all numbers of a chunk in
one search. Messages among such steps say nothing about the end, so only the last chunk before a change is searched for
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import lt

from hpc_llm.parse import facts
from hpc_llm.parse.outcomes import Signal, signals_in
from hpc_llm.parse.registry import LineFormat, formats_in
from hpc_llm.parse.rows import STEP_COLUMNS
from hpc_llm.parse.rules import Kind, Rule, Value
from hpc_llm.parse.runs import OF_THE_JOB, PEAKS, LogRun

CHUNK = 1 << 18
"""Bytes that are searched at once."""
FEWEST_STEPS_A_CHUNK = 64
"""A chunk with fewer step lines than this is worth the careful lane."""
NEAR = 2048
"""A step number that comes again within so many bytes is another rank's copy and no new run."""

_STREAM = re.compile(
    rb"\s*(?:\d{1,5}: ?|\[(?:rank|default|Rank )?\d{1,5}\]: ?|\[\d+,\d+\]<std(?:out|err)>: ?"
    rb"|\([^()\n]{3,60}pid=\d+[^()\n]{0,60}\) ?){1,3}"
)
_METRIC_LIKE = re.compile(
    rb"^[^\n]{0,400}?(?i:\b(?:loss|perplexity|ppl|throughput|tokens?/s(?:ec)?|samples?/s(?:ec)?|tok/s|it/s"
    rb"|grad[_ ]?norm|step[_ ]time|tflops|mfu)\b)[\"']?(?:\s*\([^()\n]{1,20}\))?\s*[:=|]?\s*[\"']?[-+]?\d[^\n]*$",
    re.MULTILINE,
)
_KEPT_EXAMPLES = 5
_STEP_FIELDS = frozenset(STEP_COLUMNS)


@dataclass
class Found:
    """A match in a chunk."""

    start: int
    end: int
    precedence: int
    format: LineFormat | None
    rule: Rule | None
    match: re.Match[bytes] | None
    signal: Signal | None = None


@dataclass
class Unparsed:
    """Lines that look like a metric and that no rule took."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        self.count += 1
        if len(self.examples) < _KEPT_EXAMPLES:
            self.examples.append(line[:200].decode("utf-8", "replace").strip())

    def merge(self, other: Unparsed) -> None:
        self.count += other.count
        self.examples = (self.examples + other.examples)[:_KEPT_EXAMPLES]


class Scanner:
    """Reads the blocks of one log, or of one piece of it, in order."""

    def __init__(
        self,
        formats: tuple[LineFormat, ...],
        *,
        on_step: Callable[[int, Mapping[str, Value]], None] | None = None,
        count_unparsed: bool = False,
        careful: bool = False,
    ) -> None:
        """`on_step` gets the number of the run, from 0, and each complete step; without it the fast lane is used."""
        self.runs: list[LogRun] = [LogRun()]
        self.unparsed = Unparsed()
        self._formats: tuple[LineFormat, ...] = ()
        self._on_step = on_step
        self._count_unparsed = count_unparsed
        self._careful_only = careful or on_step is not None or count_unparsed
        self._bulk: tuple[LineFormat, Rule] | None = None
        self._skipped_chunk: bytes | None = None
        self._offset = 0
        self._last_step_end = 0
        self._aside: dict[str, Value] = {}
        self._seen_fast: list[bytes] = []
        self._rules_of_step: set[Rule | None] = set()
        self._use(formats)

    @property
    def run(self) -> LogRun:
        return self.runs[-1]

    def _use(self, formats: tuple[LineFormat, ...]) -> None:
        self._formats = tuple(sorted({*self._formats, *formats}, key=lambda f: (f.precedence, f.name)))
        self._owned = any(not f.companion and any(r.kind is Kind.STEP for r in f.rules) for f in self._formats)

    def look_for_formats(self, text: bytes) -> None:
        """Use the formats whose output is in `text`, too."""
        self._use(formats_in(text))

    def feed(self, block: bytes) -> None:
        """Read the next block; it ends at the end of a line."""
        begin = 0
        while begin < len(block):
            end = block.rfind(b"\n", begin, begin + CHUNK) + 1 or block.find(b"\n", begin + CHUNK) + 1 or len(block)
            chunk = block[begin:end]
            if not self._fast(chunk):
                self._careful(chunk)
            self._offset += len(chunk)
            begin = end

    def finish(self) -> list[LogRun]:
        """All input was read; the runs, without an empty one at the end."""
        self._search_skipped_chunk()
        self._flush()
        return [run for run in self.runs if not run.empty] or [LogRun()]

    # The fast lane

    def _fast(self, chunk: bytes) -> bool:
        """Take the steps of `chunk` at once, if nothing else is in it that matters."""
        if self._careful_only or self._bulk is None or self.run.closed:
            return False
        owner, step_rule = self._bulk
        if any(text in chunk for text in self._texts_that_matter(owner, step_rule)):
            return False
        matches = step_rule.pattern.findall(chunk)
        if len(matches) < FEWEST_STEPS_A_CHUNK:
            return False
        lists = dict(zip((name for name, _ in step_rule.columns), zip(*matches, strict=True), strict=True))
        try:
            steps = list(map(int, lists.pop("step")))
            if self.run.last is None or steps[0] <= self.run.last or not all(map(lt, steps, steps[1:])):
                return False
            columns = {n: _numbers(step_rule, n, texts) for n, texts in lists.items() if self._wanted(owner, n)}
        except ValueError:
            return False
        self.run.add_steps(steps, {name: numbers for name, numbers in columns.items() if numbers})
        self._skipped_chunk = chunk
        self._last_step_end = self._offset + len(chunk)
        return True

    def _wanted(self, owner: LineFormat, name: str) -> bool:
        return owner.averages or name == "loss" or name in PEAKS

    def _texts_that_matter(self, owner: LineFormat, step_rule: Rule) -> list[bytes]:
        """Texts of all other rules of the programs in the log: a chunk with one of them is for the careful lane."""
        if not self._seen_fast:
            texts = [facts.CELL.strip()]
            for one in self._formats:
                if not one.companion:
                    texts += [r.literal for r in one.rules if r is not step_rule and r.literal]
            self._seen_fast = texts
        return self._seen_fast

    def _choose_bulk(self) -> None:
        """Use the fast lane from here on, if the last step came by a rule that allows it."""
        self._seen_fast = []
        self._bulk = None
        owners = [f for f in self._formats if not f.companion]
        step_rules = [(f, r) for f in owners for r in f.rules if r.kind is Kind.STEP]
        if len(step_rules) != 1 or step_rules[0][1].decode or "step" not in dict(step_rules[0][1].columns):
            return
        others = [r for f in owners for r in f.rules if r is not step_rules[0][1]]
        if all(r.literal for r in others) and self._gives_peaks(step_rules[0][1]):
            self._bulk = step_rules[0]

    def _gives_peaks(self, step_rule: Rule) -> bool:
        """Peaks of a library count only where the program prints none: then its lines must be read as well."""
        return "peak_allocated_bytes" in dict(step_rule.columns) or not any(f.companion for f in self._formats)

    def _search_skipped_chunk(self) -> None:
        """Look for messages among the last steps that the fast lane took."""
        chunk, self._skipped_chunk = self._skipped_chunk, None
        if chunk is None or self._bulk is None:
            return
        found = sorted(signals_in(chunk), key=lambda s: s[0])
        for position, signal in found:
            signal.steps_after = len(self._bulk[1].pattern.findall(chunk, position))
            self.run.signals.append(signal)

    # The careful lane

    def _careful(self, chunk: bytes) -> None:
        self._search_skipped_chunk()
        lines = self.run.lines
        found = list(self._find(chunk))
        found.sort(key=lambda f: (f.start, f.precedence))
        taken_to = -1
        accepted: list[Found] = []
        for one in found:
            if one.rule is not None and one.rule.kind is Kind.STEP and one.start < taken_to:
                continue
            if self._take(one, chunk):
                accepted.append(one)
                if one.rule is not None and one.rule.kind is Kind.STEP:
                    taken_to = one.end
        self._note_start(chunk)
        if self._count_unparsed:
            self._count(chunk, accepted)
        if not self._careful_only and self.run.lines > lines:
            self._choose_bulk()

    def _find(self, chunk: bytes) -> Iterator[Found]:
        for one in self._formats:
            for rule in one.rules:
                if rule.literal is None or rule.literal in chunk:
                    for match in rule.pattern.finditer(chunk):
                        yield Found(match.start(), match.end(), one.precedence, one, rule, match)
        for rule in facts.RULES:
            if rule.literal is None or rule.literal in chunk:
                for match in rule.pattern.finditer(chunk):
                    yield Found(match.start(), match.end(), 0, None, rule, match)
        for position, signal in signals_in(chunk):
            yield Found(position, position, 1 << 30, None, None, None, signal)
        for match in facts.START.finditer(chunk):
            yield Found(match.start(), match.end(), -1, None, None, None)

    def _take(self, found: Found, chunk: bytes) -> bool:
        """Apply one match; false where it turned out to be no metric."""
        if found.signal is not None:
            self.run.signals.append(found.signal)
            return True
        if found.rule is None or found.match is None:
            self._begin(only_after_steps=False)
            return True
        values = found.rule.values(found.match)
        if values is None:
            return False
        if found.format is None:
            self.run.learn(values)
            return True
        self._apply(found, found.format, found.rule.kind, values, chunk)
        return True

    def _apply(self, found: Found, owner: LineFormat, kind: Kind, values: Mapping[str, Value], chunk: bytes) -> None:
        if kind is Kind.START:
            self._begin(only_after_steps=True)
        if kind is Kind.STEP and not (owner.companion and self._owned):
            self._step(found, found.rule, values, chunk)
            self.run.note(owner.name, owner.precedence)
            return
        self.run.note(owner.name, owner.precedence)
        below = owner.companion and self._owned
        if kind is Kind.STEP:
            self.run.learn({name: v for name, v in values.items() if name not in _STEP_FIELDS or name in PEAKS}, below)
            self._aside.update(values)
        elif kind is Kind.MORE:
            self.run.add_to_step(values)
        else:
            self.run.learn(values, below)
        if kind is Kind.END and not below:
            self._flush()
            self.run.end()

    def _step(self, found: Found, rule: Rule | None, values: Mapping[str, Value], chunk: bytes) -> None:
        order = values.get("step", values.get("epoch"))
        number = float(order) if isinstance(order, (int, float)) else None
        stream = _stream_of(chunk, found.start)
        position = self._offset + found.start
        if self.run.closed:
            self._begin(only_after_steps=False)
        elif number is not None and number == self.run.last and self.run.pending and rule not in self._rules_of_step:
            self._rules_of_step.add(rule)
            self.run.add_to_step(values)
            return
        elif self._is_copy(number, stream, position):
            self.run.learn_peaks(values)
            return
        elif number is not None and self.run.last is not None and number <= self.run.last:
            self._begin(only_after_steps=False)
        self._flush()
        if self.run.stream is None:
            self.run.stream = stream
        aside, self._aside = self._aside, {}
        self._rules_of_step = {rule}
        self.run.open_step(number, {**aside, **values})
        self._last_step_end = self._offset + found.end

    def _is_copy(self, number: float | None, stream: bytes, position: int) -> bool:
        """Whether another rank printed this step already."""
        run = self.run
        if run.stream is not None and stream != run.stream:
            return True
        return number is not None and number in run.recent and position - self._last_step_end < NEAR

    def _begin(self, *, only_after_steps: bool) -> None:
        """Another run begins, unless this one has nothing yet."""
        if only_after_steps and not (self.run.has_steps or self.run.closed):
            self.run.began = True
            return
        self._flush()
        if self.run.empty:
            return
        known = {**self.run.inherited, **self.run.values}
        inherited = {name: known[name] for name in OF_THE_JOB if name in known}
        self.runs.append(LogRun(began=True, inherited=inherited))
        self._aside = {}

    def _flush(self) -> None:
        """Hand out the step that is complete."""
        step = self.run.flush()
        if step is not None and self._on_step is not None:
            self._on_step(len(self.runs) - 1, step)

    def _note_start(self, chunk: bytes) -> None:
        if "started_at" not in self.run.values and len(self.runs) == 1:
            time = facts.first_time(chunk)
            if time is not None:
                self.run.values["started_at"] = time

    def _count(self, chunk: bytes, accepted: list[Found]) -> None:
        taken = {chunk.rfind(b"\n", 0, one.start) + 1 for one in accepted}
        for match in _METRIC_LIKE.finditer(chunk):
            if match.start() not in taken:
                self.unparsed.add(match[0])


def _stream_of(chunk: bytes, position: int) -> bytes:
    """The prefix that tells the rank whose line this is; empty where there is none."""
    match = _STREAM.match(chunk, chunk.rfind(b"\n", 0, position) + 1, position)
    return match[0].strip() if match else b""


def _numbers(rule: Rule, name: str, texts: tuple[bytes, ...]) -> list[float]:
    """A column's numbers; a line that prints none of it is left out."""
    convert = dict(rule.columns)[name]
    return [float(v) for v in map(convert, filter(None, texts)) if v is not None and not isinstance(v, str)]
