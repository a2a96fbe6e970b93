"""Tracebacks as IPython shows them, in notebooks and by what runs them: with the lines of the source around each frame, and other words for it."""

from __future__ import annotations

import re

LONGEST = 1 << 16
"""Bytes of one that are looked at."""
_HEADING = re.compile(
    rb"^(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}) {2,80}Traceback \(most recent call last\)[ \t]*$",
    re.MULTILINE,
)
_SOURCE = re.compile(rb"(?:-{1,12}> ?)?[ ]{0,12}\d{1,6}(?: |$)")


def exception_of(text: bytes, line: int) -> tuple[int, bytes, bytes] | None:
    """Position, name and message of the exception of the traceback whose heading's line begins there; None where it is none of IPython's,
    or was cut off.

    >>> log = b"ValueError      Traceback (most recent call last)\\nCell In[7], line 5\\n----> 5 raise ValueError\\nValueError: x"
    >>> exception_of(log, 0)
    (94, b'ValueError', b'x')
    """
    heading = _HEADING.match(text, line)
    if heading is None:
        return None
    begin = b"\n" + heading["name"]
    at = text.find(begin, heading.end(), heading.end() + LONGEST)
    while at >= 0:
        end = text.find(b"\n", at + 1)
        rest = text[at + len(begin) : end if end >= 0 else len(text)].rstrip()
        if not rest or rest.startswith(b":"):
            return at + 1, heading["name"], rest[1:].strip()
        at = text.find(begin, at + 1, heading.end() + LONGEST)
    return None


def is_its_source(text: bytes, position: int) -> bool:
    """Whether the line at `position` is one of the source that such a traceback shows.

    >>> log = b"KeyError      Traceback (most recent call last)\\nCell In[7], line 5\\n      4 # loss is nan\\n----> 5 f()\\nKeyError: x"
    >>> is_its_source(log, log.index(b"loss")), is_its_source(log[log.index(b"Cell") :], 25)
    (True, False)
    """
    line = text.rfind(b"\n", 0, position) + 1
    if _SOURCE.match(text, line) is None:
        return False
    heading = text.rfind(b"Traceback (most recent call last)", max(0, line - LONGEST), line)
    begin = text.rfind(b"\n", 0, max(0, heading)) + 1
    if heading < 0 or _HEADING.match(text, begin) is None:
        return False
    found = exception_of(text, begin)
    return found is None or position < found[0]
