"""Exceptions of which the text says itself that another one made them: it stands in their message, or further below in torchrun's report."""

from __future__ import annotations

import re

from hpc_llm.causes.tracebacks import LONGEST, TRACEBACK

_INSIDE = re.compile(
    rb"Original Traceback \(most|Traceback of where the remote call failed \(most|Traceback \(most recent call last\): \(RANK \d"
    rb"|-- Process \d{1,6} terminated with the following error:"
)
"""With what the exception of another process, thread or rank begins in the message of the one that it made."""
_OF_A_RANK = re.compile(rb"Traceback \(most recent call last\): \(RANK \d")
_LED = re.compile(rb"(?:Original |terminated with the following error:\n[^\n]{0,80}?)$")
"""What stands right before its heading, if that is like any other."""
_LINES = 4
_FAILURES, _ROOT = b"Failures:\n", b"Root Cause (first observed failure):\n"
"""Headings of torchrun's report: first it lists what failed later."""
_REPORT = 1 << 18
_MOST = 16


def is_made_by_another(text: bytes, position: int) -> bool:
    """Whether the exception at `position` is not the first one, as its message shows, or torchrun's report that lists it.

    >>> log = b"RuntimeError: Caught KeyError in DataLoader worker process 0.\\nOriginal Traceback (most recent call last):\\n"
    >>> is_made_by_another(log, 0), is_made_by_another(b"RuntimeError: x\\nTraceback (most recent call last):\\n", 0)
    (True, False)
    """
    return _holds_another(text, position) or _is_listed_before_root(text, position)


def _holds_another(text: bytes, position: int) -> bool:
    start, end = text.rfind(b"\n", 0, position) + 1, text.find(b"\n", position)
    prefix = text[start:position].strip()
    heading = text.rfind(TRACEBACK, max(0, position - LONGEST), position)
    for line in text[end + 1 : end + 1 + LONGEST].split(b"\n", _LINES)[:_LINES] if end >= 0 else ():
        said = line.strip().removeprefix(prefix).strip()
        if said:
            is_of_next_rank = _OF_A_RANK.match(said) and _OF_A_RANK.match(text, max(0, heading))
            return _INSIDE.match(said) is not None and not is_of_next_rank
    return False


def _is_listed_before_root(text: bytes, position: int) -> bool:
    begin = text.rfind(_FAILURES, max(0, position - _REPORT), position)
    if begin < 0 or text.find(_ROOT, begin, position) >= 0:
        return False
    return text.find(_ROOT, position, position + _REPORT) >= 0


def outer_heading(text: bytes, heading: int) -> int:
    """Where the traceback begins whose exception holds the one with its heading at `heading`; that itself where none does."""
    for _ in range(_MOST):
        is_inside = _OF_A_RANK.match(text, heading) or _LED.search(text[max(0, heading - 200) : heading])
        outer = text.rfind(TRACEBACK, max(0, heading - LONGEST), heading) if is_inside else -1
        if outer < 0:
            break
        heading = outer
    return heading
