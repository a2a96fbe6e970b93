"""A text that stands behind the end of a job: the times in it tell whether it may be that job's still."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from hpc_llm.causes.later import AT_ONCE_S, Opening

_STAMP = re.compile(rb"(?<![\d.])(20\d\d-[01]\d-[0-3]\d)[ T_]([0-2]\d:[0-5]\d:[0-5]\d)")
_DATE = re.compile(
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} \d\d:\d\d:\d\d)"
    rb"(?: [A-Z]{2,5})? (20\d\d)\b"
)
"""As `date` and nvidia-smi print it."""
_STAMPS = 16
"""So many of a piece of text are looked at."""
_DYING = timedelta(minutes=5)
"""So long after the scheduler's word a job may go on to print."""
_HEAD = 1 << 14
"""Bytes in which it shows whether a program begins anew."""
_TASK = re.compile(rb"\bsrun: error: ([\w.-]{1,80}): task (\d{1,7}): ")


@dataclass
class Aftermath:
    """A text that stands behind the end of a job."""

    job: str
    """The one that was ended."""
    at: datetime | None = None
    """When."""
    is_later: bool = False
    """A time in it shows that the job was over long before."""
    is_at_once: bool = False
    """The first time in it is that of the job's end, as where the parts of a job are ended one after the other."""
    is_of_step: bool = False
    """Somebody ended a step of the job, and nothing says that the job was over: it is what another step says, or another job's."""
    opening: Opening | None = None
    """With what the program began that was ended."""
    head: bytes = b""
    """How the text begins, and what srun said before it of the tasks that had ended."""

    @staticmethod
    def of(match: re.Match[bytes], begin: int, before: Aftermath | None) -> Aftermath:
        """What begins there behind the scheduler's line, which may itself stand behind another."""
        job = (match["job"] or match["step"]).decode("utf-8", "replace")
        is_of_job = match["job"] is not None or b" DUE TO " in match[0]
        is_said = before is not None and before.job == job and not before.is_of_step
        is_of_step = not (is_of_job or is_said)
        head = match.string[match.end() : begin] if is_of_step else b""
        return Aftermath(job, next(_times(match[0]), None), is_of_step=is_of_step, head=head)

    @property
    def is_of_another_step(self) -> bool:
        """Whether a program begins in it as the one that was ended did, or srun tells the end of a task again."""
        if not self.is_of_step:
            return False
        tasks = _TASK.findall(self.head)
        begins = self.opening is not None and self.opening.begins(self.head, is_over_before=True) is not None
        return begins or len(tasks) > len(set(tasks))

    def look(self, text: bytes) -> None:
        """Some more of it."""
        self.head += text[: _HEAD - len(self.head)] if self.is_of_step else b""
        if self.at is not None and not self.is_later:
            times = list(islice(_times(text), _STAMPS))
            self.is_later = any(time > self.at + _DYING for time in times)
            self.is_at_once = self.is_at_once or any(
                abs(time - self.at).total_seconds() < AT_ONCE_S for time in times[:1]
            )


def _times(text: bytes) -> Iterator[datetime]:
    for found in _STAMP.finditer(text):
        yield from _parsed(f"{found[1].decode()} {found[2].decode()}", "%Y-%m-%d %H:%M:%S")
    for found in _DATE.finditer(text):
        yield from _parsed(f"{found[1].decode()} {found[2].decode()}", "%b %d %H:%M:%S %Y")


def _parsed(text: str, form: str) -> Iterator[datetime]:
    try:
        yield datetime.strptime(text, form)
    except ValueError:  # the 31st of February
        return
