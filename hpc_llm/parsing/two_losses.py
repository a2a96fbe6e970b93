"""Two losses of one and the same step, as two runs have it that print into one file, one of them some steps behind the other or level with it.

A run that goes back repeats its steps one behind the other, and then goes on; of two runs the one that is behind repeats a step here and
there, with newer ones of the other between. Ranks that print the same step print the same loss of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.rules import Value
from hpc_llm.records.relations import half_unit

_KEPT = 512
"""Of so many steps the loss is known: how far one of the two may be behind."""
_TURNS = 4
"""So often the numbers go from a step that had another loss to a new one."""
WITHIN = 40
"""Lines; runs that begin again and again have more between."""
_PAIRS = 6
"""So many places in a row, two lines each, lie in two rows."""
_LEAST_PLACE = 0.0199
"""Of an epoch: lines that come regularly, and so far apart, never have one and the same place, of which two digits are printed."""
_APART = 5.0
"""The rows are so many times as far apart as a row goes from one line to the next."""


_SAME = 0.01
"""Two losses that differ by less than this part, or by one in the last digit, are told as one: a copy of a line may be reckoned anew, as
by another node."""


def differ(one: Value | None, other: Value | None) -> bool:
    """Whether two losses are of two runs.

    >>> differ(0.8548, 0.7548), differ(0.8548, 0.8549), differ(0.01, 0.02)
    (True, False, False)
    """
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
        return False
    digit = 2.1 * min(half_unit(repr(float(loss))) for loss in (one, other))
    return abs(one - other) > max(_SAME * max(abs(one), abs(other)), digit)


@dataclass
class Behind:
    """Watches for steps that come again, with another loss, behind newer ones."""

    _losses: OrderedDict[float, Value] = field(default_factory=OrderedDict)
    _newest: float | None = None
    _is_again: bool = False
    """The last line was of a step that had another loss."""
    _line: int = 0
    _turns: deque[int] = field(default_factory=lambda: deque(maxlen=_TURNS))
    """The lines at which the numbers went on from there."""

    def see(self, number: float, loss: Value | None) -> bool:
        """The next line; true where steps were repeated here and there."""
        self._line += 1
        if self._newest is None or number > self._newest:
            if self._is_again:
                self._turns.append(self._line)
            self._newest, self._is_again = number, False
        elif number < self._newest and differ(self._losses.get(number), loss):
            self._is_again = True
        if loss is not None and number not in self._losses:
            self._losses[number] = loss
            if len(self._losses) > _KEPT:
                self._losses.popitem(last=False)
        return len(self._turns) == _TURNS and self._line - self._turns[0] < WITHIN


@dataclass
class Level:
    """Watches for two lines at each place where a place is no step, and several lines may have one by rounding.

    Then the next place is the next one that can be printed; else, or where the losses lie in two rows, the lines are those of two runs.
    """

    _number: float | None = None
    _lines: list[tuple[float, Value | None]] = field(default_factory=list)
    """Loss and learning rate of the lines at this place."""
    _before: tuple[float, float] | None = None
    """The losses at the place before, the smaller one first."""
    _pairs: int = 0

    def see(self, number: float, values: Mapping[str, Value]) -> bool:
        """The next line; true where both rows were gone on with often enough."""
        loss = values.get("loss")
        if not isinstance(loss, (int, float)):
            return False
        if number != self._number:
            self._take(number)
            self._number, self._lines = number, []
        self._lines.append((float(loss), values.get("learning_rate")))
        return self._pairs >= _PAIRS

    def _take(self, following: float) -> None:
        """Count the place that is over, if it tells of two runs."""
        losses = sorted(loss for loss, _ in self._lines)
        is_pair = len(losses) == 2 and self._lines[0][1] == self._lines[1][1]
        before, self._before = self._before, (losses[0], losses[1]) if is_pair else None
        is_far = self._number is not None and following - self._number > _LEAST_PLACE
        if is_far and len(set(losses)) > 1:
            self._pairs += 1
        elif is_pair and before is not None:
            moved = max(abs(losses[0] - before[0]), abs(losses[1] - before[1]))
            self._pairs = self._pairs + 1 if losses[1] - losses[0] > _APART * moved else 0
        else:
            self._pairs = 0
