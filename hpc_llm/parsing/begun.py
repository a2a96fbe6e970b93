"""When the runs of a log began: the first time that is printed in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
    since: FirstTime = field(default_factory=FirstTime)
    """Looks at what stands between the last line that was read and the end of the chunk: the next run may have begun with it."""
    since_time: str | None = None

    def add(self, run: LogRun, begin: int, offset: int = 0) -> None:
        """A run begins at this place of the log; the chunk at hand does at `offset`."""
        if begin >= offset:
            self.waiting.append(_Waiting(run, begin))
            return
        if self.since_time is not None:
            run.values.setdefault("started_at", self.since_time)
        self.waiting.append(_Waiting(run, begin, replace(self.since)))

    def note(self, chunk: bytes, offset: int, last: LogRun, taken_to: int) -> None:
        """Give the runs that began in this chunk, or not long before, the first time printed since; `last` goes on behind it,
        and the last line that was read ends at `taken_to`."""
        self._give(chunk, offset, last)
        if taken_to >= offset:
            self.since, self.since_time = FirstTime(), None
        time = self.since.of(chunk, max(0, taken_to - offset), len(chunk))
        self.since_time = self.since_time or time

    def _give(self, chunk: bytes, offset: int, last: LogRun) -> None:
        if not self.waiting:
            return
        end = offset + len(chunk)
        next_begins = [one.begin for one in self.waiting[1:]] + [end]
        for one, limit in zip(self.waiting, next_begins, strict=True):
            time = one.time.of(chunk, max(0, one.begin - offset), min(one.begin + WITHIN, limit) - offset)
            if time is not None:
                one.run.values.setdefault("started_at", time)
        self.waiting = [one for one in self.waiting if one.run is last and one.time.left and one.begin + WITHIN > end]
