"""What is said of an error that did not end the program: in one of Python's warnings, or of a case that may come."""

from __future__ import annotations

import re

from hpc_llm.text.labels import WHOSE

_TRACEBACK = b"Traceback (most recent call last)"
_LABELS = re.compile(WHOSE.encode())
_WARNING = re.compile(rb"(?P<place>[^\n\"']{0,400}:\d{1,7}: )?(?:\w{1,60}\.){0,6}[A-Z]\w{0,40}Warning: ")
"""How Python begins a warning: the place in the source, the category, the text."""
_QUOTED = re.compile(rb"  (?!File \"|what\(\)|[ \t])(?:from |import |[^\n]{0,400}[(=])")
"""The line of the source that Python shows below a warning."""
_ABOVE, _BELOW, _LONGEST = 48, 12, 1 << 11
_DECIDES = re.compile(rb"\bCUDA initialization: ")
"""Warnings of what the program then lacks."""
_DECIDES_LAST = re.compile(rb"Not enough free disk space")
"""The same, where the program does not go on behind it."""
_GOES_ON = re.compile(
    rb"(?im)^(?!\s|[^\n]{0,400}(?:error|exception|traceback|fail|abort|kill|signal|warn|terminat|cancel|slurm|srun|core dumped|exit(?:ed|s)? ))[^\n]"
)
"""A line of its work."""
_CONDITION = (
    rb"(?:\b(?:if|in case|when(?:ever)?|should) (?:you|this|it|your \w{1,20}|the (?:job|run|program|training|process|script))(?: \w{1,12}){0,3}?"
    rb" (?:get|gets|see|sees|saw|got|encounter|encounters|run into|runs into|hit|hits|face|observe|receive|experience|notice|fail with|fails with|dies with|crashes with)"
    rb"|\b(?:may|might|could|can)(?: \w{1,12}){0,2}? (?:cause|lead to|result in|trigger|raise|produce|give|get|see|run into|fail with|end in|be caused by)"
    rb"|\bto (?:avoid|prevent|work around))\b"
)
_SUPPOSES = re.compile(rb"(?i)" + _CONDITION + rb"(?:(?![.;!?] )[^\n]){0,100}$")
_SUPPOSES_ABOVE = re.compile(
    rb"(?i)" + _CONDITION + rb"(?: (?:a|an|the|this|any|following|error|errors|message)){0,3}:?[ \t]*$"
)

_OPENS = re.compile(rb"[\w.'\"` \t:\[\]-]{0,60}")
"""What stands on a line before the words of an error: its class, a number, a quotation mark."""


def is_remark(text: bytes, position: int) -> bool:
    """Whether what stands at `position` is no word on how the program ended.

    >>> line = b"If you get `CUDA error: invalid device function` errors, see above"
    >>> is_remark(line, line.index(b"CUDA")), is_remark(line[12:], 0)
    (True, False)
    """
    return _is_supposed(text, position) or is_warned(text, position)


def _is_supposed(text: bytes, position: int) -> bool:
    """Whether the words before it on its line, or at the end of the one above, make it a case that may come."""
    line = text.rfind(b"\n", 0, position) + 1
    before = text[max(line, position - _LONGEST) : position]
    if _SUPPOSES.search(before):
        return True
    if line == 0 or not _OPENS.fullmatch(before):
        return False
    return _SUPPOSES_ABOVE.search(text[max(0, line - _LONGEST) : line - 1].rpartition(b"\n")[2]) is not None


def is_warned(text: bytes, position: int) -> bool:
    """Whether it stands in the text of one of Python's warnings, which may have several lines and ends with one of the source.

    >>> log = b"a.py:8: RuntimeWarning: Failed:\\nNo module named 'x'\\n  import x\\nNo module named 'y'\\n"
    >>> is_warned(log, log.index(b"No")), is_warned(log, log.rindex(b"No"))
    (True, False)
    """
    line = text.rfind(b"\n", 0, position) + 1
    if _begins_warning(text, line, position):
        return not _decides(text, line, min(len(text), position + _LONGEST))
    if b"Warning: " not in text[max(0, line - _ABOVE * 200) : line]:
        return False
    raised, at = False, line
    for _ in range(_ABOVE):
        if at == 0:
            return False
        end, at = at - 1, text.rfind(b"\n", 0, at - 1) + 1
        raised = raised or text.find(_TRACEBACK, at, end) >= 0
        if _begins_warning(text, at, end):
            return _ends_below(text, position, 1 if raised else _BELOW) and not _decides(text, at, end)
        if _is_quoted(text, at, end):
            return False
    return False


def _decides(text: bytes, begin: int, end: int) -> bool:
    """Whether the warning there tells of what ended the program."""
    if _DECIDES.search(text, begin, end):
        return True
    said = _DECIDES_LAST.search(text, begin, end)
    behind = text.find(b"\n", said.end()) if said is not None else -1
    return said is not None and (behind < 0 or _GOES_ON.search(text, behind + 1) is None)


def _begins_warning(text: bytes, line: int, end: int) -> bool:
    """Whether a warning begins on that line before `end`; without its place it may be an exception, below the frames of its traceback."""
    found = _WARNING.match(text, _behind_labels(text, line), max(line, end))
    if found is None or found["place"] is not None:
        return found is not None
    above = text.rfind(b"\n", 0, max(0, line - 1)) + 1
    return text[_behind_labels(text, above) :][:2] != b"  "


def _ends_below(text: bytes, position: int, most: int) -> bool:
    """Whether the line of the source follows within so many lines."""
    at = text.find(b"\n", position) + 1
    for _ in range(most):
        if not 0 < at < len(text):
            return False
        end = text.find(b"\n", at)
        end = end if end >= 0 else len(text)
        if _is_quoted(text, at, end):
            return True
        if text.find(_TRACEBACK, at, end) >= 0 or _begins_warning(text, at, end):
            return False
        at = end + 1
    return False


def _is_quoted(text: bytes, line: int, end: int) -> bool:
    return _QUOTED.match(text, _behind_labels(text, line), end) is not None


def _behind_labels(text: bytes, line: int) -> int:
    """Where the line goes on behind what a launcher wrote before it; the blanks before a source belong to it."""
    labels = _LABELS.match(text, line)
    return labels.end() if labels is not None and labels[0].strip() else line
