"""What ends a process, and words of a good end that any script prints behind it: `python train.py; echo Training finished`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpc_llm.causes.tracebacks import TRACEBACK
from hpc_llm.text.labels import WHOSE

if TYPE_CHECKING:
    from hpc_llm.causes.found import Found

_WORDS_OF_ANOTHER = re.compile(
    rb"slurmstepd: error: \*\*\* (?:JOB|STEP) |srun: error: [^\n]{0,200}: (?:Exited with exit code [1-9]|Killed|Segmentation fault|Aborted|Bus error|Out Of Memory)"
    rb"|[^\n\"]{1,160}: line \d+: +\d+ +(?:Killed|Segmentation fault|Bus error|Aborted|Terminated)\b|(?:Killed|Segmentation fault|Bus error|Aborted)(?: \(core dumped\))?$"
    rb"|[^\n]{1,400}\blaunch\.py:\d{1,6}:\w{1,60}\] [^\n]{1,2000} exits with return code = -?[1-9]|[^\n]{1,200}\bfailed \(exitcode: -9\)"
    rb"|(?:[\w.]{1,80}\.)?ChildFailedError:|Fatal Python error: "
)
"""What a scheduler, a launcher or a shell says of a process that has ended; at the beginning of a line, behind the name of a rank."""
_LABELS = re.compile(WHOSE.encode())
_LOGGED = re.compile(rb"\b(?:ERROR|WARN(?:ING)?|CRITICAL)\b")
"""A level before the heading of a traceback: the program has caught the exception, and tells it."""
_FRAMES = 1 << 16


def ends_a_process(text: bytes, position: int, raised: bool) -> bool:
    """Whether the line at `position` says that a process has ended; `raised` where a traceback ends with it."""
    start = text.rfind(b"\n", 0, position) + 1
    if raised:
        return not _is_logged(text, start)
    labels = _LABELS.match(text, start)
    end = text.find(b"\n", start)
    line = text[labels.end() if labels else start : end if end >= 0 else len(text)]
    return _WORDS_OF_ANOTHER.match(line) is not None


def _is_logged(text: bytes, position: int) -> bool:
    heading = text.rfind(TRACEBACK, max(0, position - _FRAMES), position)
    line = text.rfind(b"\n", 0, max(heading, 0)) + 1
    before = text.rfind(b"\n", 0, max(line - 1, 0)) + 1
    if heading < 0 or _LOGGED.search(text, before, heading) is None:
        return False
    return _WORDS_OF_ANOTHER.match(text, before) is None  # of another program than the one whose traceback stands below


def end_of(found: Iterable[Found], ended_at: int | None, firm_at: int | None) -> int | None:
    """Where training came to its end: at `ended_at`, unless that is mere words behind what had ended the program.

    `firm_at` is where a program said so in words of its own, as with the time that training took.
    """
    if ended_at is None or ended_at == firm_at:
        return ended_at
    since = -1 if firm_at is None else firm_at
    died = any(one.ends_process and not one.steps_after and since < one.position < ended_at for one in found)
    return firm_at if died else ended_at
