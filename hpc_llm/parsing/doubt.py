"""Settings that a log prints with several values before the first step: nobody knows with which one it trained.

Such a setting counts as missing, and with it each figure that would follow from it, until the log decides: a line that says that it
overrides, a program that is started anew behind a failure, or the steps, which print it themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hpc_llm.parsing.rules import Value

WEIGHED = frozenset(
    "sequence_length micro_batch_size gradient_accumulation_steps global_batch_size world_size tensor_parallel".split()
)
"""Settings from which figures follow. Of others the last word counts: counts of parameters and ranks' devices are printed of parts."""
_OVERRIDES = re.compile(
    rb"(?i)overrid|overwrit|overrul|instead of|\bchang(?:ed|ing)\b|\badjust(?:ed|ing)\b|\breplac(?:ed|ing)\b|\brais(?:ed|ing)\b|\breduc(?:ed|ing)\b|\bscal(?:ed|ing)\b|\bset to\b"
)
_LINE = 400
"""So far before and behind the value such words are looked for, in its line and the one before."""
FAILED = re.compile(
    rb"Traceback \(most recent call last\)|srun: error|ChildFailedError|slurmstepd|(?i:\brestart|\brelaunch|\bretry|\battempt)"
)
"""What stands between a program that failed and one that is started in its place."""
_BETWEEN = 1 << 16
_MOST_TOLD = 4

Known = tuple[dict[str, Value], dict[str, Value]]
"""What the program said, and what a library below it did."""


@dataclass
class Doubt:
    """What was said of the settings of one run before its first step; of a library below the program apart."""

    said: dict[tuple[bool, str], Value] = field(default_factory=dict)
    """The last value of each."""
    values: dict[tuple[bool, str], list[Value]] = field(default_factory=dict)
    """Of those in doubt all values."""
    stale: set[tuple[bool, str]] = field(default_factory=set)
    """Said before a failure and not since."""

    def sure(
        self, values: Mapping[str, Value], known: Known, below: bool, chunk: bytes, position: int
    ) -> Mapping[str, Value]:
        """Those of `values` that can be learned; from `known` goes what they put in doubt.

        What the program says twice, no library below it decides.
        """
        names = WEIGHED & values.keys()
        if not names:
            return values
        left = dict(values)
        for name in names:
            key, value = (below, name), values[name]
            if key in self.stale:
                self.stale.discard(key)
                known[below].pop(name, None)
            before = self.values.get(key) or ([known[below][name]] if name in known[below] else [])
            if {*before, value} - {value} and _overrides(chunk, position):
                self.values.pop(key, None)
            elif {*before, value} - {value}:
                self._doubt(key, [*before, value], known)
            if key in self.values or (False, name) in self.values:
                del left[name]
            self.said[key] = value
        return left

    def restart(self, chunk: bytes, position: int, known: Known) -> None:
        """A program is started there: behind a failure its settings replace those that were said before."""
        if (self.said or self.values) and FAILED.search(chunk, max(0, position - _BETWEEN), position):
            self.said, self.values = {}, {}
            self.stale = {(below, name) for below in (False, True) for name in WEIGHED & known[below].keys()}

    def merge(self, later: Doubt, known: Known, known_later: Known, has_steps: bool) -> None:
        """What the next piece of the log said before its first step; behind a step it is no setting of this run."""
        if has_steps:
            return
        for key, value in later.said.items():
            below, name = key
            mine = self.values.get(key) or ([known[below][name]] if name in known[below] else [])
            theirs = later.values.get(key) or [value]
            if len({*mine, *theirs}) > 1:
                self._doubt(key, [*mine, *theirs], known)
                if known_later[below].get(name) == value:  # else the steps there have said it
                    del known_later[below][name]
            self.said[key] = value

    def told(self, known: Mapping[str, Value]) -> Iterator[str]:
        """Sentences on what stayed in doubt, where neither steps nor anything else have said it since."""
        for name in sorted({name for _, name in self.values} - known.keys()):
            every = [one for (_, other), values in self.values.items() if other == name for one in values]
            different = list(dict.fromkeys(every))[:_MOST_TOLD]
            yield f"ambiguous {name}: {' and '.join(map(str, different))} are printed before the first step, and nothing says which one it trains with"

    def _doubt(self, key: tuple[bool, str], values: list[Value], known: Known) -> None:
        below, name = key
        self.values[key] = list(dict.fromkeys(values))
        known[below].pop(name, None)
        if not below:
            known[True].pop(name, None)


def _overrides(chunk: bytes, position: int) -> bool:
    """Whether the line at that place, or the one before it, says that the value replaces another."""
    line = chunk.rfind(b"\n", max(0, position - _LINE), position) + 1
    before = chunk.rfind(b"\n", max(0, line - _LINE), max(0, line - 1)) + 1
    end = chunk.find(b"\n", position + 1, position + _LINE)
    return _OVERRIDES.search(chunk, before or max(0, line - _LINE), end if end > 0 else position + _LINE) is not None
