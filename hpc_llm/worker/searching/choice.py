"""Which try comes next: sizes are doubled, then halved in between, then the largest is confirmed and the fastest looked for. Pure.

Nothing is taken for granted that was not run: a limit need not be monotone, so the largest size is the largest that was seen to
fit, and the search ends where the next one above it was seen not to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.micro_batches import MicroBatches, micro_batches_of
from hpc_llm.worker.searching.tries import Try, TryOutcome

_TWICE = 2
"""Tries of a size after which a failure that is not memory's, or a job that was lost, counts against it."""
_SLOWER = 0.9
"""Smaller sizes are tried until one has less than this part of the best rate."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A try to be made."""

    size: int
    length: int
    confirms: bool


@dataclass(frozen=True)
class Known:
    """What is known of the sizes at one sequence length."""

    length: int
    sizes: MicroBatches
    tries: Sequence[Try]
    """Those at this length."""

    def group(self, size: int, *, confirms: bool) -> list[Try]:
        return [one for one in self.tries if one.size == size and one.confirms == confirms]

    def fits(self, size: int, *, confirms: bool) -> bool | None:
        """Whether it does; None where that is not known (yet)."""
        group = self.group(size, confirms=confirms)
        conclusive = [one for one in group if one.verdict.is_conclusive]
        if not conclusive:
            return False if sum(one.verdict is TryOutcome.LOST for one in group) >= _TWICE else None
        last = conclusive[-1]
        if last.verdict is TryOutcome.FAILED and sum(one.verdict is TryOutcome.FAILED for one in group) < _TWICE:
            return None
        return last.verdict is TryOutcome.FITS

    @property
    def good(self) -> list[int]:
        """Sizes that fit, and were not seen to fail for longer, the smallest first."""
        tried = sorted({one.size for one in self.tries})
        return [
            size
            for size in tried
            if self.fits(size, confirms=False) is not False
            and self.fits(size, confirms=True) is not False
            and (self.fits(size, confirms=False) or self.fits(size, confirms=True))
        ]

    @property
    def bad(self) -> list[int]:
        """Sizes that were seen not to fit."""
        tried = sorted({one.size for one in self.tries})
        return [size for size in tried if False in (self.fits(size, confirms=c) for c in (False, True))]

    @property
    def largest(self) -> int | None:
        return max(self.good, default=None)

    @property
    def limit(self) -> int | None:
        """The smallest size above the largest good one that is known not to fit."""
        return min((size for size in self.bad if size > (self.largest or 0)), default=None)

    def rate(self, size: int) -> float:
        """Tokens/s in its short try, as all sizes have one; 0 where it is not known."""
        return self._rate(size, confirms=False)

    def best_rate(self, size: int) -> float:
        """Tokens/s in the try that confirmed it, which is the longest, or else in its short one."""
        return self._rate(size, confirms=True) or self.rate(size)

    def _rate(self, size: int, *, confirms: bool) -> float:
        group = [one for one in self.group(size, confirms=confirms) if one.verdict is TryOutcome.FITS]
        return group[-1].tokens_per_second or 0.0 if group else 0.0

    @property
    def promising(self) -> int | None:
        """The size that was fastest in the short tries."""
        return max(self.good, key=self.rate, default=None)

    @property
    def fastest(self) -> int | None:
        """By tries of one length: once the promising size is confirmed, too, the long ones tell it from the others that are."""
        if self.promising is None or not self._rate(self.promising, confirms=True):
            return self.promising
        confirmed = [size for size in self.good if self._rate(size, confirms=True)]
        return max(confirmed, key=lambda size: self._rate(size, confirms=True))

    @property
    def faster_unconfirmed(self) -> list[int]:
        """Sizes whose short try was faster than the longest of any size that is confirmed, the fastest first; nothing before one is."""
        confirmed = {size: rate for size in self.good if (rate := self._rate(size, confirms=True))}
        best = max(confirmed.values(), default=math.inf)
        faster = (size for size in self.good if size not in confirmed and self.rate(size) > best)
        return sorted(faster, key=self.rate, reverse=True)


def known_at(length: int, plan: Plan, tries: Sequence[Try]) -> Known:
    return Known(length, micro_batches_of(plan), [one for one in tries if one.length == length])


def lengths_of(plan: Plan) -> list[int]:
    """The sequence lengths of the search, the shortest first."""
    return plan.tuning.lengths or [plan.batch.sequence_length]


def next_try(plan: Plan, tries: Sequence[Try]) -> Wanted | None:
    """The try that comes next; None where all is known."""
    before: Known | None = None
    for length in lengths_of(plan):
        known = known_at(length, plan, tries)
        # Over many lengths the frontier is what is asked for.
        wanted = next_at(known, _first(plan, known, before), looks_for_fastest=not plan.tuning.lengths)
        if wanted is not None:
            return wanted
        before = known
    return None


def _first(plan: Plan, known: Known, before: Known | None) -> int:
    """The size to begin with: the plan's, or as many tokens as fitted at the length before."""
    if before is None:
        return known.sizes.at_most(plan.batch.micro_batch_size) or 1
    return known.sizes.at_most((before.largest or 0) * before.length // known.length) or 1


def next_at(known: Known, first: int, *, looks_for_fastest: bool) -> Wanted | None:
    """The same at one length."""
    for confirms in (False, True):
        for size in sorted({one.size for one in known.tries if one.confirms == confirms}):
            if known.fits(size, confirms=confirms) is None:
                return Wanted(size=size, length=known.length, confirms=confirms)
    found = _next_size(known, first)
    if found is not None:
        return Wanted(size=found, length=known.length, confirms=False)
    for size, confirms in _last_steps(known, looks_for_fastest):
        if not known.group(size, confirms=confirms):
            return Wanted(size=size, length=known.length, confirms=confirms)
    return None


def _next_size(known: Known, first: int) -> int | None:
    """The next size on the way to the largest; None once that is known."""
    sizes, low, high = known.sizes, known.largest, known.limit
    if not known.tries:
        return first
    if low is None:
        return _smaller(known)
    if high is not None:
        return sizes.between(low, high)
    doubled = sizes.at_most(2 * low) or low
    return doubled if doubled > low else sizes.above(low)


def _smaller(known: Known) -> int | None:
    """The next size where none has fitted yet; None where the smallest has not."""
    least = min(known.bad)
    if least == 1:
        return None
    last = [one for one in known.group(least, confirms=False) if one.verdict.is_conclusive]
    if last and last[-1].verdict is TryOutcome.FAILED:
        return 1  # what is not of memory may be of any size
    return known.sizes.at_most(least // 2)


def _last_steps(known: Known, looks_for_fastest: bool) -> Iterator[tuple[int, bool]]:
    """Size, and whether it is to be confirmed, of what is left once the largest is known."""
    if known.largest is None:
        return
    yield known.largest, True
    if not looks_for_fastest:
        return
    for size in _halves(known):
        yield size, False
    if known.promising is not None:
        yield known.promising, True
    yield from ((size, True) for size in known.faster_unconfirmed)


def _halves(known: Known) -> Iterator[int]:
    """Ever smaller sizes, as long as they are not clearly slower than the best."""
    size = known.largest or 0
    best = max(map(known.rate, known.good), default=0.0)
    while True:
        if size in known.good and size < (known.promising or 0) and known.rate(size) < _SLOWER * best:
            return
        size = known.sizes.at_most(size // 2) or 0
        if not size:
            return
        yield size
