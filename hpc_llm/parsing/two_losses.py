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


def _went_back(before: Said | None, said: Said) -> bool:
    return before is not None and None not in (before.clock_s, said.clock_s) and said.clock_s < before.clock_s  # type: ignore[operator]


@dataclass(frozen=True)
class Said:
    """What a line says of its step."""

    loss: Value | None
    clock_s: float | None = None
    """Seconds since the start, of a file that one process alone writes: it writes no step twice but behind a restart."""

    def is_of_another(self, first: Said, before: Said | None) -> bool:
        """Whether this line, behind that one `before`, and the `first` one of the step are of two runs: by their losses, or because the
        only process would have written the step again while its clock went on."""
        if differ(self.loss, first.loss):
            return True
        if self.loss is None or first.loss is None or self.clock_s is None or before is None or before.clock_s is None:
            return False
        return self != first and self.clock_s >= before.clock_s


@dataclass
class Behind:
    """Watches for steps that come again, with another loss, behind newer ones."""

    _said: OrderedDict[float, Said] = field(default_factory=OrderedDict)
    _before: Said | None = None
    _began_anew: bool = False
    """The clock went back where the numbers did."""
    _newest: float | None = None
    _is_again: bool = False
    """The last line was of a step that had another loss."""
    _line: int = 0
    _turns: deque[int] = field(default_factory=lambda: deque(maxlen=_TURNS))
    """The lines at which the numbers went on from there."""

    def see(self, number: float, said: Said) -> bool:
        """The next line; true where steps were repeated here and there."""
        self._line += 1
        before, self._before = self._before, said
        if self._newest is None or number > self._newest:
            if self._is_again:
                self._turns.append(self._line)
            self._newest, self._is_again, self._began_anew = number, False, False
        elif number < self._newest and (first := self._said.get(number)) is not None:
            self._began_anew = self._began_anew or _went_back(before, said)
            self._is_again = self._is_again or said.is_of_another(first, None if self._began_anew else before)
        if said.loss is not None and number not in self._said:
            self._said[number] = said
            if len(self._said) > _KEPT:
                self._said.popitem(last=False)
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
