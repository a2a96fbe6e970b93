"""Whether a step that comes again is another rank's copy of the line, or the first step of another run.

Ranks that print the same lines do so step by step, and one that lags is soon level with the others; a run that begins anew goes
back to the very first step, and prints each step as often as the one before did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hpc_llm.parsing.matches import Hit, stream_of
from hpc_llm.parsing.rules import Kind, Rule, Value
from hpc_llm.parsing.run import LogRun

_AHEAD = 256
"""Lines in which the prefix of a rank is looked for."""


@dataclass
class Copies:
    """Watches the lines that were taken for copies, and knows what stands behind the one that is looked at."""

    hits: Sequence[Hit] = ()
    """All of the text at hand, in order."""
    place: int = 0
    """Where among them the line stands."""
    _run: LogRun | None = None
    _copied: set[float] = field(default_factory=set)
    """Steps of that run which were printed more than once."""
    _second: Value | None = None
    """The number that the last second line of a step has."""

    def note(self, run: LogRun, number: float | None) -> None:
        """Another rank printed this step of the run."""
        if self._run is not run:
            self._run, self._copied = run, set()
        if number is not None:
            self._copied.add(number)

    def takes_second_line(
        self, run: LogRun, found: Hit, values: Mapping[str, Value], rules_of_step: set[Rule | None]
    ) -> bool:
        """Take a line that counts from the start of its process, where the step that is being read has a number of the whole run.

        After a checkpoint was loaded these two differ; the count of the process is never ahead.
        """
        rule, number = found.rule, values.get("step")
        if rule is None or found.format is None or not rule.counts_anew or run.over or not run.pending:
            return False
        if not isinstance(number, int) or run.last is None or number >= run.last:
            return False
        if rule in rules_of_step:
            run.learn_peaks(values if number == self._second else {})
            return number == self._second
        if rules_of_step.isdisjoint(found.format.rules):
            return False
        rules_of_step.add(rule)
        self._second = number
        run.add_to_step({name: value for name, value in values.items() if name != "step"})
        return True

    def begin_anew(self, run: LogRun, number: float, rule: Rule | None) -> bool:
        """Whether the line, of a step that the run has already, is the first one of another run."""
        if number != run.first or number == run.last:
            return False
        numbers = [number, *self._coming(rule)]
        if self._run is run and self._copied:
            return len(numbers) > 1 and numbers[1] == number
        return all(other > one or (other == run.first and other < one) for one, other in pairwise(numbers))

    def stream_of_run(self, run: LogRun, number: float | None, chunk: bytes) -> bytes | None:
        """Under which prefix the run's steps stand from here on: that of before, or of this line, the next step of the run.

        The line of a step may be glued to an unfinished bar, stand behind a mark of the encoding, or be the last one before a
        launcher writes its lines otherwise. Then none of those that come has the prefix of before.
        """
        if run.stream is None or number is None or run.last is None or number <= run.last or not self.hits:
            return run.stream
        here = stream_of(chunk, self.hits[self.place].start)
        coming = [stream_of(chunk, one.start) for one in self.hits[self.place + 1 :][:_AHEAD] if one.is_step]
        if here == run.stream or run.stream in coming:
            return run.stream
        return here if run.lines <= 1 or here in coming else run.stream

    def _coming(self, rule: Rule | None) -> Iterator[float]:
        """The numbers of the step lines behind it, up to where a program begins."""
        yield from _numbers(self.hits[self.place + 1 :], rule)


def _numbers(hits: Iterable[Hit], rule: Rule | None) -> Iterator[float]:
    for hit in hits:
        if hit.rule is None or hit.match is None or hit.rule.kind in (Kind.START, Kind.SETUP, Kind.END):
            return
        if hit.rule is rule:
            step = (hit.rule.values(hit.match) or {}).get("step")
            if isinstance(step, int):
                yield float(step)
