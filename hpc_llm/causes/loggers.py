"""What loggers and launchers write before a message: a level, a time, a place in the source, a process."""

from __future__ import annotations

import re

from hpc_llm.text.labels import WHOSE

_ERROR = re.compile(
    rb"(?<![\w.])(?:ERROR|Error|error|CRITICAL|Critical|critical|FATAL|Fatal|fatal)(?![\w.])|(?<![\w.])E\d{3,4} (?=\d)|\[NeMo E "
)
"""The level of an error; glog writes it as `E` and the day."""
_WARNING = re.compile(rb"(?<![\w.])W\d{3,4} (?=\d\d:)|\bWARN(?:ING)?\b")
"""The level of a warning; glog writes it as `W` and the day."""
_PIECES = re.compile(
    rb"\[[^\[\]\n]{0,120}\]|\([^()\n]{1,120}\)|(?<![\w.])[\w./-]{1,120}\.(?:py|cpp|cc|cu|rs|hpp)(?::\d{1,6})?(?!\w)"
    rb"|(?<![A-Za-z_])[\d:.,TZ/+-]+(?![A-Za-z_])"
)
"""What stands in brackets, files and times."""
_SEPARATOR = re.compile(rb"[|:>\]\[]+|(?<=\s)-+(?=\s|$)|^-+")
_LABELS = re.compile(WHOSE.encode())
_LONGEST = 200
_NAMES = 4
"""So many names of loggers, modules and functions stand there at most."""


def opens_a_message(text: bytes, position: int) -> bool:
    """Whether what stands at `position` begins its line, or the message of an error behind a logger's prefix.

    >>> line = b"ERROR 04-17 15:10:09 [engine.py:448] ValueError: x"
    >>> opens_a_message(line, line.index(b"ValueError"))
    True
    >>> line = b"ERROR: the first try ended with ValueError: x"
    >>> opens_a_message(line, line.index(b"ValueError"))
    False
    """
    before = text[text.rfind(b"\n", 0, position) + 1 : position]
    return _LABELS.fullmatch(before) is not None or _is_of_error(before)


def is_no_warning(text: bytes, position: int) -> bool:
    """Whether what stands at `position` is not what a logger calls a warning.

    >>> line = b"1: [W324 13:46:04.935789486 TCPStore.cpp:122] [c10d] sendBytes failed on SocketImpl(fd=4): Broken pipe"
    >>> is_no_warning(line, line.index(b": Broken")), is_no_warning(b"OSError: Broken pipe", 7)
    (False, True)
    """
    start = text.rfind(b"\n", 0, position) + 1
    return _WARNING.search(text, start, min(position, start + _LONGEST)) is None


def _is_of_error(before: bytes) -> bool:
    """Whether a logger writes that before an error: nothing but names, each with its sign behind it, and no sentence."""
    if len(before) > _LONGEST or _ERROR.search(before) is None or any(quote in before for quote in (b'"', b"'", b"`")):
        return False
    left = _PIECES.sub(b"|", _ERROR.sub(b"|", before))
    *names, last = _SEPARATOR.split(left)
    words = [name.split() for name in names]
    return not last.strip() and max(map(len, words), default=0) <= 1 and sum(map(len, words)) <= _NAMES
