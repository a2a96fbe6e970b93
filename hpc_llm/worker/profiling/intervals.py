"""Time that is shared out so that each moment counts once. Standard library only.

Events overlap: copies run beside kernels, collectives beside both. Sums of their lengths are more than the time that passed, so
each moment goes to the first of the kinds that are at work then. What is left over is idle, and all shares are the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Span = tuple[float, float]
"""Begin and end, in any unit."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The same moments in spans that do not touch, in order.

    >>> union([(3, 4), (0, 2), (1, 2.5), (5, 5)])
    [(0, 2.5), (3, 4)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Span]) -> float:
    """Of all of them, which must not overlap."""
    return sum(end - begin for begin, end in spans)


def within(spans: Iterable[Span], windows: Sequence[Span]) -> list[Span]:
    """What of the spans lies in a window, in order and without overlap.

    >>> within([(0, 5), (4, 9)], [(1, 2), (8, 12)])
    [(1, 2), (8, 9)]
    """
    found, left = [], union(windows)
    place = 0
    for begin, end in union(spans):
        while place < len(left) and left[place][1] <= begin:
            place += 1
        for opens, closes in left[place:]:
            if opens >= end:
                break
            found.append((max(begin, opens), min(end, closes)))
    return found


def shared_out(kinds: Mapping[str, Iterable[Span]], windows: Sequence[Span], rest: str) -> dict[str, float]:
    """How long each kind was at work in the windows, a moment of several counting for the first of them alone.

    `rest` is what no kind was at work in. All together are the length of the windows.

    >>> shared_out({"compute": [(0, 4)], "communication": [(3, 6)]}, [(0, 10)], "idle")
    {'compute': 4, 'communication': 2, 'idle': 4}
    """
    whole = union(windows)
    taken: list[Span] = []
    found: dict[str, float] = {}
    before: float = 0
    for name, spans in kinds.items():
        taken = union([*taken, *within(spans, whole)])
        now = length(taken)
        found[name], before = now - before, now
    return {**found, rest: length(whole) - before}
