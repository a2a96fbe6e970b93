"""Where the numbers that a rank has of a parameter lie in the whole of it, and where what two ranks have overlaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where what a rank has of a parameter lies in the whole, the numbers of either in one row, one behind the other."""

    begin: int = 0
    """Of the first number, in the whole."""
    width: int = 0
    """So many numbers follow each other in the whole, too; 0 where all of them do."""
    pitch: int = 0
    """So far behind each other the stretches of `width` numbers begin in the whole."""
    is_written: bool = True
    """Whether this rank writes it; of what several have whole, one does."""


ALL_OF_IT = Place()


@dataclass(frozen=True)
class Piece:
    """Some numbers that follow each other in what a rank has of a parameter."""

    begin: int
    """Of the first, in what the rank has."""
    count: int
    place: Place = ALL_OF_IT

    def runs(self, first: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int]]:
        """What of it lies between two places of the whole, in stretches: (place in the whole, place in the piece, numbers)."""
        if not self.place.width:
            yield from _common(self.place.begin + self.begin, 0, self.count, first, end)
            return
        width, pitch, last = self.place.width, self.place.pitch, self.begin + self.count
        row = max(self.begin // width, (first - self.place.begin) // pitch)
        while row * width < last and (end is None or row * pitch + self.place.begin < end):
            low, high = max(self.begin, row * width), min(last, (row + 1) * width)
            whole = row * pitch + self.place.begin + low - row * width
            yield from _common(whole, low - self.begin, high - low, first, end)
            row += 1

    def overlaps(self, other: Piece) -> Iterator[tuple[int, int, int]]:
        """The numbers that both are: (place in this piece, place in the other, numbers)."""
        ours, theirs = self.place, other.place
        if (ours.begin, ours.width, ours.pitch) == (theirs.begin, theirs.width, theirs.pitch):
            low, high = max(self.begin, other.begin), min(self.begin + self.count, other.begin + other.count)
            if low < high:
                yield low - self.begin, low - other.begin, high - low
            return
        for whole, own, count in self.runs():
            for at, others, common in other.runs(whole, whole + count):
                yield own + at - whole, others, common


def _common(whole: int, own: int, count: int, first: int, end: int | None) -> Iterator[tuple[int, int, int]]:
    low, high = max(whole, first), whole + count if end is None else min(whole + count, end)
    if low < high:
        yield low, own + low - whole, high - low
