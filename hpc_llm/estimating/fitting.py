"""Constants from measured runs: positive numbers, moved one after the other until no step brings predictions nearer. Pure Python.

The constants are few and their effect is smooth, so that this needs seconds and no numerical library. What the runs say nothing
of stays where it was: each constant is held to its first value by a spring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

Constants = Mapping[str, float]

WEAK = 0.0005
"""Weight of a constant's distance from its first value beside the mean square of the runs' errors, both of logarithms."""
_FIRST, _LAST = 0.3, 0.001
"""Lengths of the steps, as natural logarithms of the factors."""
_ROUNDS = 200


def loss_of(ratios: Iterable[float]) -> float:
    """How far predictions are from what was measured: squares of the logarithms, and of outliers no more than in proportion.

    >>> loss_of([1.0, 1.0])
    0.0
    """
    losses = [_one(abs(math.log(ratio))) for ratio in ratios]
    return sum(losses) / len(losses)


def _one(error: float) -> float:
    return error * error if error < 0.3 else 0.6 * error - 0.09  # the tangent: a run that went wrong must not decide


def descend(
    start: Constants, names: Iterable[str], loss: Callable[[Constants], float], spring: float = WEAK
) -> dict[str, float]:
    """The constants with those of `names` moved to where the loss is least nearby."""

    def held(values: Constants) -> float:
        return loss(values) + spring * sum(math.log(values[name] / start[name]) ** 2 for name in lengths)

    lengths = dict.fromkeys(names, _FIRST)
    best, least = dict(start), held(start)
    for _ in range(_ROUNDS):
        for name in lengths:
            best, least, lengths[name] = _moved(best, least, name, lengths[name], held)
        if max(lengths.values(), default=0.0) < _LAST:
            break
    return best


def _moved(
    best: dict[str, float], least: float, name: str, length: float, loss: Callable[[Constants], float]
) -> tuple[dict[str, float], float, float]:
    for sign in (1, -1):
        tried = {**best, name: best[name] * math.exp(sign * length)}
        found = loss(tried)
        if found < least - 1e-9:
            return tried, found, length * 1.3
    return best, least, length * 0.6
