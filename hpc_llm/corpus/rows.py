"""Which samples make up the rows that are trained on: the same for planning, which counts them, and for the ranks.

`none`: a sample a row, padded. `documents`: as many whole samples as fit, each of which sees itself alone. `stream`: the
tokens of all samples end to end, cut into rows; the rest that fills no row is left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from hpc_llm.corpus.format import SplitFacts
from hpc_llm.corpus.words import DOCUMENTS, DROP, REFUSE, TRUNCATE
from hpc_llm.errors import PlanError

_OPEN_ROWS = 64
"""Rows that may still get a sample: the more, the less is padded, and the further samples move from their place."""


@dataclass(frozen=True)
class Samples:
    """Where the samples of a split lie: the tokens behind each, and where each begins to be learned."""

    ends: Sequence[int]
    starts: Sequence[int]

    def __len__(self) -> int:
        return len(self.ends)

    def begin(self, sample: int) -> int:
        """The place of its first token."""
        return self.ends[sample - 1] if sample else 0

    def length(self, sample: int) -> int:
        return self.ends[sample] - self.begin(sample)


@dataclass(frozen=True)
class Rows:
    """The samples of each row: those of row i are `samples[firsts[i]:firsts[i + 1]]`."""

    samples: array[int]
    firsts: array[int]

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def of(self, row: int) -> array[int]:
        """The samples of a row."""
        return self.samples[self.firsts[row] : self.firsts[row + 1]]


def stream_rows(tokens: int, length: int, *, with_rest: bool = False) -> int:
    """Rows of a stream; a last one that is not full counts `with_rest`, as where all is to be evaluated."""
    return -(-tokens // length) if with_rest else tokens // length


def check_lengths(facts: SplitFacts, split: str, length: int, too_long: str, *, is_causal: bool) -> None:
    """Raise PlanError where a sample is longer than a row and nobody has said what is to become of such."""
    longest = facts.longest if is_causal else max(facts.longest_source, facts.longest_target)
    if too_long == REFUSE and longest > length:
        raise PlanError(
            f"the longest sample of the {split} split, {facts.longest_at}, has {longest} tokens, and sequence_length is {length}: "
            f"ask for more with --sequence-length, or say --set too_long={TRUNCATE} (its end is left out, and all of "
            f"it where nothing to learn would be left) or --set too_long={DROP} (such samples are left out)."
        )


def make_rows(samples: Samples, packing: str, length: int, too_long: str, *, is_causal: bool = True) -> Rows:
    """The rows of `none` and `documents`, of samples that have something to be learned within `length` tokens."""
    kept = array("Q", _kept(samples, length, too_long, is_causal))
    if packing == DOCUMENTS:
        return _packed(samples, kept, length)
    return Rows(kept, array("Q", range(len(kept) + 1)))


def _kept(samples: Samples, length: int, too_long: str, is_causal: bool) -> list[int]:
    kept, begin = [], 0
    for sample, (end, start) in enumerate(zip(samples.ends, samples.starts, strict=True)):
        size, begin = end - begin, end
        is_whole = size <= length if is_causal else max(start, size - start) <= length
        # A sample of one token predicts nothing, and neither does one of which the prompt alone fills the row.
        learns = max(start, 1) < min(size, length) if is_causal else start < size
        if learns and (is_whole or too_long != DROP):
            kept.append(sample)
    return kept


def _packed(samples: Samples, kept: Sequence[int], length: int) -> Rows:
    """Each sample goes to the row that it fills best, among the few that are open."""
    rows: list[array[int]] = []
    room: list[tuple[int, int]] = []  # what is left in an open row, and which one it is
    for sample in kept:
        size = min(samples.length(sample), length)
        place = bisect_left(room, (size, 0))
        if place < len(room):
            left, row = room.pop(place)
        else:
            left, row = length, len(rows)
            rows.append(array("Q"))
        rows[row].append(sample)
        if left > size:
            insort(room, (left - size, row))
        if len(room) > _OPEN_ROWS:
            room.pop(0)  # the fullest
    order, firsts = array("Q"), array("Q", [0])
    for one in rows:
        order.extend(one)
        firsts.append(len(order))
    return Rows(order, firsts)
