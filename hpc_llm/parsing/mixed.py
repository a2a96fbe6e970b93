"""Step lines of one file that cannot be of one run: two programs, or two runs of one, printed into it in turns.

A run that is restarted or resumed goes back once, and goes on from there; an epoch begins again; ranks print the same step
more than once, and their prefix or the step's number tells it. None of them prints the next step of what it had left, and
then the next one of what it had gone back to; nor two totals of steps, or two sizes of the batch, for one and the same step.
Once may be chance, or a line that was torn: it must be seen more than once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.two_losses import WITHIN, Behind, Level, Said
from hpc_llm.records.relations import half_unit

PROOFS = 2
"""So often it must be seen."""
SETTINGS = ("total_steps", "global_batch_size", "world_size")
"""What a step line may say of the whole run: it is the same in all lines of one step."""
_TOTAL = "total_steps"
_KEPT = 8
_FAR = 0.05
"""Two readings of one step's loss differ by less than this part of it."""

STEPS = "their numbers go back and forth"
TOTALS = "they have two numbers of steps in turns"
SAME_STEP = "they say different things of the same step"
FORMATS = "two programs print them in turns"
LOSSES = "each step has two losses, or two times, and one rank alone prints it"


def in_words(what: str) -> str:
    """The sentence for a run whose step lines show `what`.

    >>> in_words(TOTALS)
    'the step lines of more than one run stand here mixed (they have two numbers of steps in turns), so no figure is taken'
    """
    return f"the step lines of more than one run stand here mixed ({what}), so no figure is taken"


def first_piece(runs: Sequence[LogRun], since: LogRun | None, what: str) -> int:
    """The place of the first of those runs which is a piece of the ones that stand mixed `since` one of them."""
    first = next((place for place, run in enumerate(runs) if run is since), len(runs) - 1)
    while what == LOSSES and first > 0 and runs[first].lines < WITHIN:
        first -= 1  # each time that the numbers went back a run was begun
    return first


def has_too_many_lines(run: LogRun) -> bool:
    """Whether more lines were printed of training than it has steps, of which each has one at most."""
    total = run.values.get("total_steps")
    return not run.numbered and isinstance(total, int) and 1 < total < run.lines - 1


@dataclass
class _Turns:
    """Counts how often a value comes again that another one had taken the place of."""

    last: Value | None = None
    other: Value | None = None
    returns: int = 0

    def see(self, value: Value) -> bool:
        """The next value; true where it has come again often enough."""
        if value == self.last:
            return False
        self.returns = self.returns + 1 if value == self.other else 0
        self.last, self.other = value, self.last
        return self.returns >= PROOFS


@dataclass
class _Paths:
    """Follows two rows of step numbers, of which the log prints now one and now the other."""

    upper: float | None = None
    """The last number of the row that was left when the numbers went back; None where they never did."""
    lower: float = 0.0
    on_upper: bool = False
    returns: int = 0

    def see(self, number: float, last: float) -> bool:
        """The next number after `last`; true where both rows were gone on with often enough."""
        if number <= last:
            is_next = self.upper is not None and self.on_upper and self.lower < number
            is_next = is_next and number - self.lower <= last - number
            self.returns = self.returns + 1 if is_next else 0
            self.upper, self.lower, self.on_upper = last, number, False
        elif self.upper is not None and not self.on_upper:
            if number > self.upper:
                self.on_upper = self.lower < self.upper and number - self.upper < number - last
                self.upper = number if self.on_upper else None
            self.lower = last if self.on_upper else number
        return self.returns >= PROOFS


@dataclass
class Mixture:
    """Watches the step lines of a log, those of one rank where a prefix tells it."""

    _totals: _Turns = field(default_factory=_Turns)
    _formats: _Turns = field(default_factory=_Turns)
    _paths: _Paths = field(default_factory=_Paths)
    _seen: OrderedDict[float, tuple[str, Mapping[str, Value]]] = field(default_factory=OrderedDict)
    """What the first line of each of the last steps said."""
    _contradicted: list[float] = field(default_factory=list)
    _last: float | None = None
    _last_said: Said | None = None
    _last_has_two: bool = False
    _doubles: int = 0
    """Steps in a row that had two losses."""
    _behind: Behind = field(default_factory=Behind)
    _level: Level = field(default_factory=Level)

    def restart(self) -> None:
        """A program begins: going back is no wonder."""
        self._paths, self._behind, self._level = _Paths(), Behind(), Level()
        self._seen.clear()
        self._last, self._last_has_two, self._doubles = None, False, 0

    def of(
        self,
        program: LineFormat,
        number: float | None,
        values: Mapping[str, Value],
        one_loss: bool,
    ) -> str | None:
        """The next line of a program: what shows that it is not of the same run.

        With `one_loss` no two ranks print the same step with different losses. The number may be that of a
        place, which several steps may have.
        """
        if _TOTAL in values and self._totals.see(values[_TOTAL]):
            return TOTALS
        if number is None:
            return None
        known = self._seen.get(number)
        owner, clock = program.name, values.get("clock_s") if program.one_writer else None
        said = Said(values.get("loss"), clock if isinstance(clock, float) else None)
        if one_loss and self._has_two(number, values, said, "order" not in values):
            return LOSSES
        if known is None:
            self._seen[number] = owner, values
            if len(self._seen) > _KEPT:
                self._seen.popitem(last=False)
            return FORMATS if self._formats.see(owner) else None
        if number not in self._contradicted and _differs(known, owner, values):
            self._contradicted = [*self._contradicted[-PROOFS:], number]
        return SAME_STEP if len(self._contradicted) >= PROOFS else None

    def _has_two(self, number: float, values: Mapping[str, Value], said: Said, is_step: bool) -> bool:
        level = self._has_two_losses(number, said) if is_step else self._level.see(number, values)
        return self._behind.see(number, said) or level

    def _has_two_losses(self, number: float, said: Said) -> bool:
        """Whether steps in a row came twice at once with different losses: a restart repeats them one behind the other."""
        if number != self._last:
            self._doubles = self._doubles if self._last_has_two else 0
            self._last, self._last_said, self._last_has_two = number, said, False
        elif not self._last_has_two and self._last_said is not None:
            self._last_has_two = said.is_of_another(self._last_said, self._last_said)
            self._doubles += self._last_has_two
        return self._doubles >= PROOFS

    @property
    def is_between(self) -> bool:
        """Whether the numbers went back, and nothing since shows that they stay."""
        return self._paths.upper is not None

    def goes(self, number: float, last: float) -> str | None:
        """The next step's number, no copy of an earlier line."""
        return STEPS if self._paths.see(number, last) else None


def _differs(known: tuple[str, Mapping[str, Value]], owner: str, values: Mapping[str, Value]) -> bool:
    first_owner, first = known
    if any(name in first and name in values and first[name] != values[name] for name in SETTINGS):
        return True
    one, other = first.get("loss"), values.get("loss")
    if not isinstance(one, (int, float)) or not isinstance(other, (int, float)) or first_owner == owner:
        return False  # ranks without a prefix may print each its own loss
    rounded = sum(half_unit(repr(float(loss))) for loss in (one, other))
    return abs(one - other) > _FAR * max(abs(one), abs(other)) + rounded
