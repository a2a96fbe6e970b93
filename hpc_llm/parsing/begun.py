"""When the runs of a log began: the first time that is printed in each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hpc_llm.parsing.facts import FirstTime, first_and_last, is_under_way
from hpc_llm.parsing.run import LogRun

_Span = tuple[datetime, datetime] | None
_APART = timedelta(minutes=10)
"""Times between two runs that lie farther apart are of both, and nothing tells where one ends and the other begins."""
WITHIN = 1 << 20
"""Bytes after its beginning in which a run's first time stamp is looked for."""


@dataclass
class _Waiting:
    run: LogRun
    begin: int
    """Where in the log."""
    before: LogRun | None = None
    """The run whose end the one time above it may tell as well: no time stands above that one then."""
    time: FirstTime = field(default_factory=FirstTime)


def _joined(one: _Span, other: _Span) -> _Span:
    return (one[0], other[1]) if one is not None and other is not None else one or other


@dataclass
class Begun:
    """Those of which no time is known yet."""

    waiting: list[_Waiting] = field(default_factory=list)
    since: FirstTime = field(default_factory=FirstTime)
    """Looks at what stands between the last line that was read and the end of the chunk: the next run may have begun with it."""
    since_time: str | None = None
    since_span: _Span = None
    """The first and the last time that stand there."""
    last: LogRun | None = None
    """The run that began last."""

    @staticmethod
    def of(first: LogRun) -> Begun:
        """That of a log, with which this run begins."""
        return Begun([_Waiting(first, 0)], last=first)

    def add(self, run: LogRun, begin: int, offset: int = 0, chunk: bytes = b"", opening: int = 0) -> None:
        """A run begins at this place of the log; the chunk at hand does at `offset`, and the run opens at `opening` of it."""
        before, self.last = self.last, run
        since = max(0, begin - offset)
        span = first_and_last(chunk, since, opening)
        if begin < offset:
            span = _joined(self.since_span, span)
        if span is not None and span[1] - span[0] > _APART:
            self.waiting.append(_Waiting(run, begin, time=FirstTime(left=0)))
            return
        before = before if span is not None and span[0] == span[1] else None
        tells_of_steps = is_under_way(chunk, since, opening) or (begin < offset and not self.since.left)
        if span is None and (tells_of_steps or begin + WITHIN < offset + opening):  # the last words of the run before
            begin = offset + opening
        if begin >= offset:
            self.waiting.append(_Waiting(run, begin, before))
            return
        if self.since_time is not None and (before is None or "started_at" in before.values):
            run.values.setdefault("started_at", self.since_time)
        self.waiting.append(_Waiting(run, begin, before, replace(self.since)))

    def note(self, chunk: bytes, offset: int, last: LogRun, taken_to: int) -> None:
        """Give the runs that began in this chunk, or not long before, the first time printed since; `last` goes on behind it,
        and the last line that was read ends at `taken_to`."""
        self._give(chunk, offset, last)
        if taken_to >= offset:
            self.since, self.since_time, self.since_span = FirstTime(), None, None
        time = self.since.of(chunk, max(0, taken_to - offset), len(chunk))
        self.since_time = self.since_time or time
        self.since_span = _joined(self.since_span, first_and_last(chunk, max(0, taken_to - offset), len(chunk)))

    def _give(self, chunk: bytes, offset: int, last: LogRun) -> None:
        if not self.waiting:
            return
        end = offset + len(chunk)
        next_begins = [one.begin for one in self.waiting[1:]] + [end]
        for one, limit in zip(self.waiting, next_begins, strict=True):
            time = one.time.of(chunk, max(0, one.begin - offset), min(one.begin + WITHIN, limit) - offset)
            if time is not None and (one.before is None or "started_at" in one.before.values):
                one.run.values.setdefault("started_at", time)
        self.waiting = [one for one in self.waiting if one.run is last and one.time.left and one.begin + WITHIN > end]
