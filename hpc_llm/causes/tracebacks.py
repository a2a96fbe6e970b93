"""The exceptions that tracebacks end with: per rank, through prefixes, boxes and lines of other processes in between."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpc_llm.causes import ipython
from hpc_llm.causes.loggers import is_no_warning

TRACEBACK = b"Traceback (most recent call last)"
_HEADING = re.compile(rb"Traceback (?:of where the remote call failed )?\(most recent call last\)")
"""With the words of Monarch, which shows below an exception what failed on another process."""
LONGEST = 1 << 16
"""Bytes after the heading in which the exception is looked for."""
PER_LINE = 8
"""So much of one kind is looked at on one line: ranks that print into one another, and no line that repeats itself."""
_OVERLAP = 64
"""So many tracebacks may lie within one another: a text is gone through that often at most."""

_EXCEPTION = re.compile(
    rb"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80})(?::(?: (?P<message>.*)|$)|$)",
)
_CLASS = re.compile(rb"(?:Error|Exception|Interrupt|Exit|Failed|Timeout|Warning|Failure|Abort|Stop|Mismatch)\w{0,16}$")
_SMALL = (b"error", b"gaierror", b"herror", b"timeout")
"""Classes of modules of C, as `socket.timeout` and `struct.error`: behind the name of the module."""
_HARMLESS = (b"Exception ignored ", b"--- Logging error ---", b"Exception in thread")
"""What stands before the traceback of an exception with which the program goes on: Python says `Exception ignored in`, `on`,
`while calling` and so on."""
_LOOKED_BACK = 300
_BOX = b"\xe2\x95\xad"  # the corner of the frame in which rich prints tracebacks
_BAR = re.compile(rb"\d%\||it/s|s/it|\[\d+:\d\d<")
_LABEL = re.compile(rb"(?:\[(?:rank|default|Rank )?\d{1,5}\]:|\(\w{1,60} pid=[^()\n]{1,80}\))$")
_LABELS = re.compile(rb"(?:\[(?:rank|default|Rank )?\d{1,5}\]:|\(\w{1,60} pid=[^()\n]{1,80}\)|\d{1,5}:)")
_NUMBER = re.compile(rb"[ \t]{0,8}(\d{1,9})([:\t])")
"""The number of a line in the file from which `grep -n` or `cat -n` took it."""
_CLOCK = re.compile(
    rb"(?:\d{4}[-/]\d\d[-/]\d\d[T _]|\b[A-Z][a-z]{2} {1,2}\d{1,2} )?(?<!\d)\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?|(?<![\d.:])\d{1,10}\.\d{1,9}(?![\d.])"
)
"""A time, or the seconds since the start, as programs that pass lines on write it before each."""
_DIGITS = re.compile(rb"\d+")
_NO_ERROR = re.compile(rb"\b(?:WARN(?:ING)?|INFO|DEBUG|[Ww]arning|[Ii]nfo|[Dd]ebug)\b")
"""Levels of what a program tells and goes on."""
_MESSAGE, _MORE_LINES = 400, 4
_INDENT = re.compile(rb" {0,64}(?=File \")")
_FIRST_FRAME = 1000
"""Bytes below a heading in which the first frame stands."""


def exceptions_in(text: bytes) -> Iterator[tuple[int, str, str]]:
    """Position, name and message of the exception that each traceback in `text` ends with."""
    left = _OVERLAP * (len(text) + LONGEST)
    for start, line_start in _headings(text):
        if (
            left > 0
            and is_no_warning(text, start)
            and not _is_harmless(text[max(0, line_start - _LOOKED_BACK) : start])
        ):
            found, end = _end_of(text, line_start, text[line_start:start])
            left -= end - start
            if found is not None:
                yield found


def _is_harmless(before: bytes) -> bool:
    """Whether what stands right before a traceback says that the program goes on with it, and not with an earlier one."""
    said = max(map(before.rfind, _HARMLESS))
    return said > before.rfind(TRACEBACK)


def _headings(text: bytes) -> Iterator[tuple[int, int]]:
    """Where the headings of tracebacks and their lines begin, of each line the first few."""
    found, before, on_line = _HEADING.search(text), -1, 0
    while found is not None:
        start = found.start()
        line_start = text.rfind(b"\n", 0, start) + 1
        on_line, before = on_line + 1 if line_start == before else 1, line_start
        yield start, line_start
        begin = start + 1 if on_line < PER_LINE else text.find(b"\n", start)
        found = _HEADING.search(text, begin) if begin >= 0 else None


def _end_of(text: bytes, begin: int, before: bytes) -> tuple[tuple[int, str, str] | None, int]:
    """The exception of the traceback whose heading's line begins at `begin` and has `before` in front, and how far it was looked for."""
    shown = ipython.exception_of(text, begin)
    if shown is not None:
        return (shown[0], shown[1].decode(), _shortened(shown[2])), shown[0]
    prefix = before.split(_BOX)[0].rstrip(b" ") if not before.isspace() else b""
    if _BAR.search(prefix):  # the line was not ended, and the following ones do not begin as it does
        label = _LABEL.search(prefix)
        prefix = label[0] if label else b""
    position = text.find(b"\n", begin) + 1
    opens = _numbered(text, begin, position, prefix) or _opens(_prefix_below(text, position, prefix))
    margin = b" " * _margin(text, position, opens)
    limit = min(len(text), begin + LONGEST)
    indented = False
    while 0 < position < limit:
        end = text.find(b"\n", position)
        end = end if end >= 0 else len(text)
        opened = opens.match(text, position, end)
        if opened is not None:
            content = text[opened.end() : end].removeprefix(margin)
            if not content[:1].isspace() and (match := _exception(content, indented)):
                found = text.find(match["name"], opened.end())
                message = _shortened(match["message"] or _message_below(text, end, opens, match))
                return (found, match["name"].decode(), message), end
            indented = content[:1].isspace() or (indented and not content)
            if _HEADING.search(content):
                return None, end
        position = end + 1
    return None, max(position, begin)


def _opens(prefix: bytes) -> re.Pattern[bytes]:
    """What a line with that prefix begins with: the same, at any time."""
    parts, at = [], 0
    for clock in _CLOCK.finditer(prefix):
        parts += [re.escape(prefix[at : clock.start()]), _DIGITS.sub(rb"\\d+", re.escape(clock[0]))]
        at = clock.end()
    return re.compile(b"".join((*parts, re.escape(prefix[at:]))))


def _numbered(text: bytes, begin: int, position: int, prefix: bytes) -> re.Pattern[bytes] | None:
    """The same where the prefix begins with the number of a line in its file: the first frame, right below, has the next one."""
    own, below = _NUMBER.match(prefix), _NUMBER.match(text, position)
    if own is None or below is None or below[2] != own[2] or int(below[1]) != int(own[1]) + 1:
        return None
    opens = re.compile(rb"[ \t]{0,8}\d{1,9}" + own[2] + _opens(prefix[own.end() :]).pattern)
    opened = opens.match(text, position)
    return opens if opened and text[opened.end() : opened.end() + 80].lstrip(b" ").startswith(b"File ") else None


def _prefix_below(text: bytes, position: int, prefix: bytes) -> bytes:
    """What the lines below the heading begin with: a logger writes its prefix before the first line of a message alone."""
    if not prefix or _opens(prefix).match(text, position) or _NO_ERROR.search(prefix):
        return prefix
    label = _LABELS.match(prefix)
    for one in (label[0].rstrip(b" ") if label else b"", b""):
        if text.startswith(one, position) and text[position + len(one) : position + len(one) + 12].lstrip(
            b" "
        ).startswith(b"File "):
            return one
    return prefix


def _margin(text: bytes, position: int, opens: re.Pattern[bytes]) -> int:
    """Blanks before the lines of the traceback whose first frame stands at `position` or a little below: whoever shows it within a
    message of its own, as torchrun's report does, indents it. One belongs to most prefixes."""
    for line in text[position : position + _FIRST_FRAME].split(b"\n"):
        if (opened := opens.match(line)) and (indent := _INDENT.match(line, opened.end())):
            return max(1, len(indent[0]) - 2)
    return 1


def _exception(content: bytes, indented: bool) -> re.Match[bytes] | None:
    """A line such as `pkg.SomeError: message`; one without a telling name must follow the traceback's indented lines."""
    match = _EXCEPTION.fullmatch(content.rstrip())
    if match is None:
        return None
    last = match["name"].rpartition(b".")[2]
    if _CLASS.search(last):
        return match
    has_module = b"." in match["name"]
    is_class = last in _SMALL if has_module and last.islower() else last[:1].isupper()
    return match if indented and is_class and (match["message"] or has_module) else None


def _message_below(text: bytes, end: int, opens: re.Pattern[bytes], match: re.Match[bytes]) -> bytes:
    """The first line with words of a message that begins below its exception's name; Python writes a colon behind that where there is one."""
    if not match[0].endswith(b":"):
        return b""
    lines = text[end + 1 : end + 1 + LONGEST].split(b"\n", _MORE_LINES)[:_MORE_LINES]
    own = (line[opened.end() :].strip() for line in lines if (opened := opens.match(line)))
    return next((line for line in own if re.search(rb"\w", line)), b"")


def _shortened(message: bytes) -> str:
    whole = message.strip()
    return whole[:_MESSAGE].decode("utf-8", "replace").strip() + ("…" if len(whole) > _MESSAGE else "")
