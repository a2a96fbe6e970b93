"""All that the rules of the formats find in a chunk of text, in the order in which it stands there.

Each rule is searched on its own over the whole chunk, which is many times as fast as asking all rules of each line; the
matches of all rules are put in order afterwards. What they mean for a run is decided in `hpc_llm.parsing.scan`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from hpc_llm.causes.schedulers import is_quoted
from hpc_llm.parsing import facts
from hpc_llm.parsing.heads import HEAD
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Rule, Value

_STREAM = re.compile(
    rb"[ \t]{0,80}(?:\d{1,5}: ?|\[(?:rank|default|Rank )?\d{1,5}\]: ?|\[\d+,\d+\]<std(?:out|err)>: ?"
    rb"|\([^()\n]{3,60}pid=\d+[^()\n]{0,60}\) ?){1,3}"
)


class Border(Enum):
    """What divides a log into runs, apart from what programs print."""

    CELL = "the next cell of a notebook"
    JOB_OVER = "the scheduler ended the job"
    REPORTED = "the scheduler's report on the job is over"
    HEAD = "a table with which the script of a job may begin"


@dataclass(slots=True)
class Hit:
    """A match in a chunk: of a rule, which a format may own, or of a border."""

    start: int
    end: int
    precedence: int
    format: LineFormat | None = None
    rule: Rule | None = None
    match: re.Match[bytes] | None = None
    border: Border | None = None
    torn: str | None = None
    """Column of the last number, in which the line was torn."""

    def values(self) -> Mapping[str, Value] | None:
        """The columns that the line gives; None where it is no metric after all."""
        found = self.rule.values(self.match) if self.rule is not None and self.match is not None else None
        return found if found is None or self.torn is None else {n: v for n, v in found.items() if n != self.torn}

    @property
    def is_step(self) -> bool:
        return self.rule is not None and self.rule.kind is Kind.STEP


def hits_in(chunk: bytes, formats: Iterable[LineFormat]) -> list[Hit]:
    """The matches of all rules, and the borders, in order; at one place the owner of the steps comes first."""
    return sorted(_all_in(chunk, formats), key=lambda hit: (hit.start, hit.precedence))


def _all_in(chunk: bytes, formats: Iterable[LineFormat]) -> Iterator[Hit]:
    repeated: list[tuple[LineFormat, Rule]] = []
    divided = False
    for one in formats:
        for rule in one.rules:
            if rule.literal is not None and rule.literal not in chunk:
                continue
            if rule.identity is not None:
                repeated.append((one, rule))
                continue
            for hit in _of_rule(chunk, one, rule):
                divided = divided or rule.kind in (Kind.START, Kind.SETUP, Kind.END)
                yield hit
    for border in _borders(chunk):
        divided = True
        yield border
    yield from _repeated(chunk, repeated, divided)
    yield from _facts(chunk)


def _of_rule(chunk: bytes, owner: LineFormat, rule: Rule) -> Iterator[Hit]:
    for match in rule.pattern.finditer(chunk):
        if owner.kind is None and is_quoted(chunk, match.start(), match.end()):
            continue  # of a scheduler, and not by it
        yield Hit(match.start(), match.end(), owner.precedence, owner, rule, match)


def _repeated(chunk: bytes, rules: Iterable[tuple[LineFormat, Rule]], divided: bool) -> Iterator[Hit]:
    """What a program prints again and again: the last word is enough, unless another run may begin in between."""
    for owner, rule in rules:
        for match in rule.pattern.finditer(chunk) if divided else rule.latest(chunk):
            yield Hit(match.start(), match.end(), owner.precedence, owner, rule, match)


def _facts(chunk: bytes) -> Iterator[Hit]:
    for rule in facts.RULES:
        if rule.literal is None or rule.literal in chunk:
            for match in rule.pattern.finditer(chunk):
                if not is_quoted(chunk, match.start(), match.end()):
                    yield Hit(match.start(), match.end(), 0, None, rule, match)


def _borders(chunk: bytes) -> Iterator[Hit]:
    if facts.END_OF_JOB in chunk:
        for match in facts.JOB_OVER.finditer(chunk):
            if not is_quoted(chunk, match.start(), match.end()):  # after all else at its place
                yield Hit(match.start(), match.end(), 1 << 30, match=match, border=Border.JOB_OVER)
    if b"The output (if any) is above" in chunk:
        for match in facts.LSF_OVER.finditer(chunk):
            yield Hit(match.start(), match.end(), 1 << 30, match=match, border=Border.REPORTED)
    for match in HEAD.finditer(chunk) if b"\n| NVIDIA-SMI " in chunk else ():
        yield Hit(match.start(), match.end(), -1, match=match, border=Border.HEAD)
    for match in facts.START.finditer(chunk):  # before all else at its place
        yield Hit(match.start(), match.end(), -1, border=Border.CELL)


_REST_OF_A_NUMBER = rb"\n[.,]?\d[\d.,eE+-]{0,20}"
_ALONE, _BEFORE_A_NAME = rb"[ \t]*(?:\n|\Z|[ \t]\|)", rb"  ?[a-z]\w{0,12}:"
_REST_ALONE = re.compile(rb"[.,]?" + _REST_OF_A_NUMBER + _ALONE)
"""Behind a line that ends in a number: what was a part of it, with nothing behind it, or what parts the pairs of a line."""
_REST_BEFORE_A_NAME = re.compile(rb"[.,]?" + _REST_OF_A_NUMBER + _BEFORE_A_NAME)
"""The same before the next name; there are programs whose lines begin so."""
BROKEN = re.compile(_REST_OF_A_NUMBER + rb"(?:" + _ALONE + rb"|" + _BEFORE_A_NAME + rb")")
"""A line that may be the rest of one that was broken in a number."""


class WholeHits:
    """Leaves out a last line that was cut short, and of a line that was torn the last number: half a number is a number, too.

    Whether it was cut shows only beside the lines like it before, which have more numbers, or more digits. A number at the very
    end, beside which there are no decimals to count, may have lost any of its digits.
    """

    def __init__(self) -> None:
        self._usual_sizes: dict[Rule, tuple[int, int]] = {}
        self._fullest: dict[Rule, re.Match[bytes]] = {}

    def of(self, hits: list[Hit], chunk: bytes) -> list[Hit]:
        """The hits in the next chunk, those left out that were cut short."""
        if not chunk.endswith(b"\n"):
            hits = [hit for hit in hits if not self._is_cut(hit, chunk)]
        for hit in hits:
            hit.torn = self._torn_column(hit, chunk)
        last = {hit.rule: hit.match for hit in hits if hit.rule is not None and hit.match is not None}
        self._usual_sizes.update({rule: _size_of(match) for rule, match in last.items()})
        return hits

    def _is_cut(self, hit: Hit, chunk: bytes) -> bool:
        if hit.rule is None or hit.match is None or b"\n" in chunk[hit.start :]:
            return False
        size = _size_of(hit.match)
        usual = self._usual_sizes.get(hit.rule)
        is_open = hit.end > _last_number(chunk)
        return size < (usual or size) or (is_open and (usual is None or not usual[1]))

    def _torn_column(self, hit: Hit, chunk: bytes) -> str | None:
        """The column of a number behind which the line goes on as no line like it does: another process wrote into it, or broke it."""
        if hit.rule is None or hit.match is None or hit.rule.decode is not None or not hit.match.lastindex:
            return None
        match, last = hit.match, hit.match.lastindex
        end, name = match.end(last), hit.rule.columns[last - 1][0]
        if _REST_ALONE.match(chunk, end):
            return name
        fullest = self._fullest.setdefault(hit.rule, match)
        if fullest.lastindex is None or fullest.lastindex <= last:
            self._fullest[hit.rule] = match
            return None
        usual, here = fullest.end(last), chunk[end : end + 1]
        is_other = here in (b"[", b"(", b"<", b"{") and here != fullest.string[usual : usual + 1]
        return name if usual > 0 and (is_other or _REST_BEFORE_A_NAME.match(chunk, end)) else None


def _size_of(match: re.Match[bytes]) -> tuple[int, int]:
    """How many groups matched, and how many digits after its point a number at the end has.

    >>> _size_of(re.match(rb"(a)? .*", b" Peak Mem: 5.78"))
    (0, 2)
    """
    text = match[0]
    before = text.rstrip(b"0123456789")
    return sum(group is not None for group in match.groups()), len(text) - len(before) if before.endswith(b".") else 0


def _last_number(chunk: bytes) -> int:
    """Where the number begins that the chunk ends in; its length where it ends in none.

    >>> _last_number(b"loss: 4.0"), _last_number(b"lr: 1e-"), _last_number(b"time: 3 s")
    (6, 4, 9)
    """
    begin = len(chunk.rstrip(b"-+.,0123456789eE"))
    return begin if any(chr(c).isdigit() for c in chunk[begin:]) else len(chunk)


def line_at(chunk: bytes, position: int) -> bytes:
    """The line in which `position` lies."""
    end = chunk.find(b"\n", position)
    return chunk[chunk.rfind(b"\n", 0, position) + 1 : end if end >= 0 else len(chunk)]


def stream_of(chunk: bytes, position: int) -> bytes:
    """The prefix that tells the rank whose line this is; empty where there is none."""
    match = _STREAM.match(chunk, chunk.rfind(b"\n", 0, position) + 1, position)
    return match[0].strip() if match else b""
