"""How the learning rate of a run goes up and down. Standard library only: plan and worker read the same."""

from __future__ import annotations

import math
from typing import Literal, get_args

Schedule = Literal["constant", "linear", "cosine"]
"""What follows the ramp: the rate stays, or falls to nearly nothing in a straight line, or as half a wave does."""

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def rate_factor(schedule: str, number: int, ramp_steps: int, steps: int) -> float:
    """The share of the peak learning rate at step `number`, from 1, of `steps`, of which the first `ramp_steps` are the ramp.

    The peak is reached at the end of the ramp, or at the first step; no step has a rate of 0.

    >>> [rate_factor("linear", number, 2, 5) for number in range(1, 6)]
    [0.5, 1.0, 0.75, 0.5, 0.25]
    >>> [rate_factor("constant", number, 2, 5) for number in range(1, 4)]
    [0.5, 1.0, 1.0]
    >>> [round(rate_factor("cosine", number, 0, 4), 3) for number in range(1, 5)]
    [1.0, 0.854, 0.5, 0.146]
    """
    if number <= ramp_steps:
        return number / ramp_steps
    if schedule == "constant":
        return 1.0
    peak = max(ramp_steps, 1)
    done = (number - peak) / (steps + 1 - peak)
    return 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
