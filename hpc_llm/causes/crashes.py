"""Where a process crashed, as Python's faulthandler says it: the frames of each thread, the innermost first."""

from __future__ import annotations

import re

_FATAL = b"Fatal Python error: "
_OTHERS = rb"(?:[^\n]{0,20}\b(?:srun|slurmstepd[\w-]{0,80}): [^\n]{0,400}\n){0,3}"
"""What Slurm writes into the same file meanwhile: it learns of the end before all that the process wrote has come."""
_CURRENT = re.compile(
    rb"^(?P<label>[^\n]{0,60}?)(?:Current thread|Thread) 0x[0-9a-f]{1,16}[^\n]{0,80}\(most recent call first\):[^\S\n]*\n"
    + _OTHERS
    + rb"(?P=label)[ \t]{0,4}File \"(?P<path>[^\"\n]{1,400})\", line (?P<line>\d{1,7}) in (?P<function>[^\n]{1,160})$",
    re.MULTILINE,
)
_DUMP = 1 << 15
"""Bytes behind the error in which all threads are told."""
_MOST = 256


def crashed_at(text: bytes, position: int) -> str | None:
    """File, line and function of the call in which the thread crashed that the line at `position` speaks of; None where nobody says it.

    >>> crashed_at(b'Fatal Python error: Aborted\\n\\nCurrent thread 0x7f (most recent call first):\\n  File "/e/a.py", line 7 in f\\n', 0)
    '/e/a.py:7 in f'
    """
    line = text.rfind(b"\n", 0, position) + 1
    end = text.find(b"\n", position)
    end = end if end >= 0 else len(text)
    if text.find(_FATAL, line, end) < 0:
        return None
    following = text.find(_FATAL, end, end + _DUMP)  # of another rank
    last = following if following >= 0 else end + _DUMP
    for number, found in enumerate(_CURRENT.finditer(text, end, last)):
        if b"Current thread" in found[0]:
            where = f"{found['path'].decode('utf-8', 'replace')}:{int(found['line'])}"
            return f"{where} in {found['function'].decode('utf-8', 'replace').strip()}"
        if number == _MOST:
            break
    return None


def says_where(text: bytes, position: int) -> bool:
    """Whether it is said where the process crashed."""
    return crashed_at(text, position) is not None
