"""The steps of a log as they are read, those of a training once though it is told twice (`retold`).

A history is held back until all of it was read; of a document, which is read whole, all steps are: what stands behind may be finer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.retold import LOOKED_AT, is_finer, told_before
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.run import LogRun

MOST_HELD = 50_000
"""Steps of a log that is read as it grows; a longer history is handed out."""

Numbered = tuple[int, Mapping[str, Value]]


@dataclass
class _Telling:
    run: LogRun
    number: int
    steps: list[Mapping[str, Value]] = field(default_factory=list)
    handed_out: bool = False

    def taken(self) -> Iterator[Numbered]:
        """Its steps, once."""
        steps, self.steps, self.handed_out = self.steps, [], self.handed_out or bool(self.steps)
        return ((self.number, step) for step in steps)


class ToldSteps:
    """Takes each step with its run and the number of that, and gives it with the number that the run has among those that are told once."""

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._tellings: list[_Telling] = []
        self._again = 0
        """Tellings that were left out."""

    def see(self, run: LogRun, number: int, step: Mapping[str, Value]) -> None:
        """The next step."""
        if not self._tellings or self._tellings[-1].run is not run:
            self._judge_last()
            self._tellings.append(_Telling(run, number - self._again))
        self._tellings[-1].steps.append(step)

    def ready(self) -> Iterator[Numbered]:
        """Those that are told, whatever follows."""
        for place, one in enumerate(self._tellings if not self._whole else ()):
            is_last = place == len(self._tellings) - 1
            if not (is_last and one.run.losses.told.is_history) or len(one.steps) > MOST_HELD:
                yield from one.taken()
        if not self._whole:
            del self._tellings[: -LOOKED_AT - 1]

    def rest(self) -> Iterator[Numbered]:
        """All others, at the end."""
        self._judge_last()
        for one in self._tellings:
            yield from one.taken()

    def _judge_last(self) -> None:
        """Nothing more follows of the last telling: leave out, of it and the one that told the same training, the coarser."""
        if not self._tellings or self._tellings[-1].handed_out:
            return
        last = self._tellings[-1]
        before = told_before(last.run, [one.run for one in self._tellings[:-1]])
        if before is None:
            return
        one = next(one for one in self._tellings if one.run is before)
        if is_finer(last.run, before) and not one.handed_out:
            one.run, one.steps = last.run, last.steps
        self._tellings.pop()
        self._again += 1
