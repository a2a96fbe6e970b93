"""When the runs of a log began: the first time that is printed in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpc_llm.parsing.facts import FirstTime
from hpc_llm.parsing.run import LogRun

WITHIN = 1 << 20
"""Bytes after its beginning in which a run's first time stamp is looked for."""


@dataclass
class _Waiting:
    run: LogRun
    begin: int
    """Where in the log."""
    time: FirstTime = field(default_factory=FirstTime)


@dataclass
class Begun:
    """Those of which no time is known yet."""

    waiting: list[_Waiting] = field(default_factory=list)

    def add(self, run: LogRun, begin: int) -> None:
        """A run begins at this place of the log."""
        self.waiting.append(_Waiting(run, begin))

    def note(self, chunk: bytes, offset: int, last: LogRun) -> None:
        """Give the runs that began in this chunk, or not long before, the first time printed since; `last` goes on behind it."""
        if not self.waiting:
            return
        end = offset + len(chunk)
        next_begins = [one.begin for one in self.waiting[1:]] + [end]
        for one, limit in zip(self.waiting, next_begins, strict=True):
            time = one.time.of(chunk, max(0, one.begin - offset), min(one.begin + WITHIN, limit) - offset)
            if time is not None:
                one.run.values.setdefault("started_at", time)
        self.waiting = [one for one in self.waiting if one.run is last and one.time.left and one.begin + WITHIN > end]
