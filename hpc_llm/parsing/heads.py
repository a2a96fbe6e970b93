"""Tables of nvidia-smi: job scripts begin with one, so in a file of several jobs another may stand where the next one begins."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hpc_llm.causes.starts import Starts

_DATE = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<time>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d 20\d\d)"
HEAD = re.compile(rb"^" + _DATE + rb" {0,12}\n(?=\+-{20,200}\+\n\| NVIDIA-SMI )", re.MULTILINE)
"""The line above the table."""
_OVER = re.compile(
    rb"^(?:\[rank\d{1,5}\]: ?|\d{1,5}: ?)?(?:[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|NotFound))(?::|$)|ChildFailedError|^srun: error: ",
    re.MULTILINE,
)
"""What stands at the end of a program that failed."""
_NEAR = 1 << 13
"""It stands so near above the next job's table."""
_BARE = re.compile(
    rb"(?:[|+][^\n]{0,400}|" + _DATE + rb"[^\n]{0,40}|\s{0,400}|PS:|Read file <[^\n]{1,4000})", re.MULTILINE
)
"""A line of such a table, or of the end of LSF's report."""
_FEW = 2
"""A run with more tables looks again and again at what its GPUs do."""
_APART = timedelta(minutes=10)
"""Tables that lie farther apart may be of two jobs."""


@dataclass
class Heads:
    """Those of one run."""

    opens: bool = False
    """The run begins with one, or behind the report on the job before."""
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
    end: bytes = b""
    """The end of what stands behind the last one."""
    says: bool = False
    """Anything else is told."""
    starts: Starts = field(default_factory=Starts)
    is_started_again: bool = False
    """Its program says again, much later, with what it began."""

    def look(self, text: bytes) -> None:
        """Some more of its text."""
        behind = 0
        self.is_started_again = bool([*self.starts.of(text)]) or self.is_started_again
        for head in HEAD.finditer(text) if b"\n| NVIDIA-SMI " in text else ():
            self._note(head)
            behind, self.end = head.end(), b""
        if self.count:
            self.end = (self.end + text[behind:])[-_NEAR:]
        self.says = self.says or not all(map(_BARE.fullmatch, text.splitlines()))

    def _note(self, head: re.Match[bytes]) -> None:
        self.count += 1
        try:
            time = datetime.strptime(head["time"].decode(), "%b %d %H:%M:%S %Y")
        except ValueError:  # the 31st of February
            return
        self.first, self.last = self.first or time, time

    @property
    def is_over(self) -> bool:
        """Whether a program that began behind a table failed, and nothing follows it so far."""
        return 0 < self.count <= _FEW and _OVER.search(self.end) is not None

    @property
    def is_bare(self) -> bool:
        """Whether no program is told of: the script of the job before has looked at its GPUs once more."""
        return self.opens and not self.says

    @property
    def may_be_of_two(self) -> bool:
        """Whether tables are so far apart that two jobs may have begun with them, or the program was started more than once."""
        far = self.first is not None and self.last is not None and self.last - self.first > _APART
        return (far and self.count <= _FEW) or self.is_started_again

    def merge(self, later: Heads) -> None:
        """Go on with what a later piece of the log saw."""
        self.first, self.last = self.first or later.first, later.last or self.last
        self.end = later.end if later.count else (self.end + later.end)[-_NEAR:]
        self.is_started_again = self.is_started_again or later.is_started_again
        self.count, self.says = self.count + later.count, self.says or later.says
