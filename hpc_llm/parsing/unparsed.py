"""Lines that look like a metric and that no rule took: a format may be missing, or a program may have a new spelling.

And lines of which a number was not taken, because a comma stands in it that parts no thousands, or because bytes of the line are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpc_llm.text.sources import HOLE

_METRIC_LIKE = re.compile(
    rb"^[^\n]{0,400}?(?i:(?:(?<![a-z])(?:loss|perplexity|ppl|throughput|grad[_ ]?norm|(?:iter(?:ation)?|step)[_ ]?time|t?flops|mfu)"
    rb"|(?:tokens?|samples?|tok|it|iter|steps?|words?)(?:/|_?per_?| per )s(?:ec(?:ond)?s?)?)(?![a-z]))"
    rb"(?:(?: \w{1,12})?(?: ?\([^()\n]{1,20}\))?[\"']?[ \t]{0,20}[:=|]|[\"']?)[ \t]{0,20}[\"']?[-+]?\d[^\n]*$",
    re.MULTILINE,
)
_KEPT_EXAMPLES = 5
_NO_DIGITS = bytes.maketrans(b"0123456789", b"?" * 10)


@dataclass
class Unparsed:
    """Lines that look like a metric and that no rule took."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    commas: int = 0
    """Lines with a number that was left empty for its comma."""
    comma_example: str = ""
    damaged: int = 0
    """Lines of which bytes are lost: what is left of a number is a number, too."""

    def without_damage(self, chunk: bytes) -> bytes:
        """The chunk, of which the lines with a hole in them keep their words and have no digits any more."""
        if HOLE not in chunk:
            return chunk
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self.damaged += sum(HOLE in line for line in lines)
        return b"\n".join(line.translate(_NO_DIGITS) if HOLE in line else line for line in lines)

    def note_comma(self, line: bytes) -> None:
        """A line with such a number."""
        self.commas += 1
        self.comma_example = self.comma_example or line[:200].decode("utf-8", "replace").strip()

    def look(self, chunk: bytes, taken: Sequence[tuple[int, int]]) -> None:
        """Count the lines of `chunk` that look like a metric, without those of the matches that begin and end there."""
        starts = {start for begin, end in taken for start in _line_starts(chunk, begin, end)}
        for match in _METRIC_LIKE.finditer(chunk):
            if match.start() not in starts:
                self._add(match[0])

    def _add(self, line: bytes) -> None:
        self.count += 1
        if len(self.examples) < _KEPT_EXAMPLES:
            self.examples.append(line[:200].decode("utf-8", "replace").strip())

    def merge(self, other: Unparsed) -> None:
        self.count += other.count
        self.commas += other.commas
        self.damaged += other.damaged
        self.comma_example = self.comma_example or other.comma_example
        self.examples = (self.examples + other.examples)[:_KEPT_EXAMPLES]


def _line_starts(chunk: bytes, begin: int, end: int) -> Iterator[int]:
    """Where the lines begin that a match from `begin` to `end` is in."""
    start = chunk.rfind(b"\n", 0, begin) + 1
    while 0 <= start < max(end, begin + 1):
        yield start
        start = chunk.find(b"\n", start, end) + 1 or -1
