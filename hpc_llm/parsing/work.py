"""What steps of unequal work came to: a batch that is ramped up, sequences that grow.

The harmonic mean of rates is over equal amounts of work. Where steps hold unequal amounts, only all tokens over all time will do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpc_llm.parsing.means import Distribution

VARIES = ("global_batch_size", "sequence_length")
"""Columns that say how much a step holds."""


@dataclass
class Work:
    """How much the measured steps held and how long they took, and what changed from step to step."""

    known: dict[str, int] = field(default_factory=dict)
    """What the first step line printed."""
    changed: set[str] = field(default_factory=set)
    """Columns that other step lines print with other values."""
    first_amount: int = 0
    """Of a step of the first line, whose time may be a warm-up's."""
    amount: float = 0.0
    """In tokens, if the step lines print batch and length; else what is missing is a factor, the same for all."""
    time_s: float = 0.0

    def add(self, step: Mapping[str, Any], times: Distribution | None, before: tuple[float, float]) -> None:
        """The steps that `times` has taken in since it was as `before`, each of which is like `step`."""
        amount = math.prod(step[name] for name in VARIES if isinstance(step.get(name), int))
        self.first_amount = self.first_amount or amount
        self._see(step)
        steps, seconds = state_of(times)
        self.amount += amount * (steps - before[0])
        self.time_s += seconds - before[1]

    def _see(self, step: Mapping[str, Any]) -> None:
        for name in VARIES:
            value = step.get(name)
            if isinstance(value, int) and self.known.setdefault(name, value) != value:
                self.changed.add(name)

    def merge(self, later: Work, steps: float, seconds: float) -> None:
        """Go on with a later piece of the log; `steps` and `seconds` are those of its first line, where they count now."""
        self._see(later.known)
        self.changed |= later.changed
        self.amount += later.amount + later.first_amount * steps
        self.time_s += later.time_s + seconds
        self.first_amount = self.first_amount or later.first_amount

    def tokens_per_second(self, facts: Mapping[str, Any]) -> float | None:
        """Of all ranks; `facts` are what the log says besides the steps. None where batch or length is not known."""
        tokens = self.amount
        for name in VARIES:
            factor = 1 if name in self.known else facts.get(name)
            if not isinstance(factor, int):
                return None
            tokens *= factor
        return tokens / self.time_s if self.time_s else None


def state_of(times: Distribution | None) -> tuple[float, float]:
    """Steps and seconds that were counted so far."""
    return (times.weight, times.total) if times is not None else (0.0, 0.0)
