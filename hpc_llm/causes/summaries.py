"""A summary of the job below its output, as seff, jobstats, sacct and the epilogues of sites write it: how it ended in one word."""

from __future__ import annotations

import re

_HEADING = re.compile(rb"^[ \t]{0,40}(?:Slurm )?Job ?I[Dd][ \t]{0,24}:[ \t]{0,24}\d", re.MULTILINE)
_BEFORE = 800
"""Bytes of a summary before its state."""
_TABLE = re.compile(
    rb"^[ \t]{0,8}JobID(?:Raw)?\b[^\n]{0,400}\bState\b[^\n]{0,400}\n(?P<rows>(?:[^\n]{0,400}\S[^\n]{0,400}\n?){0,40})",
    re.MULTILINE,
)
_NUMBER = r"\d{1,12}(?:_\d{1,8}|\+\d{1,4})?"
"""Of a job, of a task of an array, or of a part of a job of several."""
_JOB = re.compile(rf"^[ \t]{{0,8}}({_NUMBER})(?:\.\w{{1,40}})?[ \t|]".encode(), re.MULTILINE)
_BEFORE_ROW = 1 << 12


def state(states: str) -> str:
    """The line that says one of `states`, a pattern; or the row of a job in sacct's table, not of a step."""
    line = rf"^[ \t]{{0,40}}(?:Job )?State[ \t]{{0,24}}:[ \t]{{1,24}}(?:{states})(?![^\s(])[^\n]{{0,60}}"
    return rf"{line}|^[ \t]{{0,8}}{_NUMBER}[ \t|][^\n]{{0,200}}?[ \t|](?:{states})(?: by \d{{1,10}})?\+?(?![^\s|])[^\n]{{0,60}}"


def is_of_a_summary(text: bytes, position: int) -> bool:
    """Whether the line at `position` is one of a summary: with an exit code as seff writes it, or below the job's number; or a row of
    a table that is of one job.

    >>> is_of_a_summary(b"State: FAILED (exit code 1)", 0), is_of_a_summary(b"State: FAILED", 0)
    (True, False)
    >>> is_of_a_summary(b"  Job ID: 71\\n   State: FAILED\\n", 13)
    True
    """
    end = text.find(b"\n", position)
    line = text[position : end if end >= 0 else len(text)]
    if _JOB.match(line):
        return _is_of_a_table(text, position)
    return b"(exit code " in line or _HEADING.search(text, max(0, position - _BEFORE), position) is not None


def _is_of_a_table(text: bytes, position: int) -> bool:
    for table in _TABLE.finditer(text, max(0, position - _BEFORE_ROW)):
        if table.start("rows") <= position < table.end("rows"):
            return len(set(_JOB.findall(table["rows"]))) == 1
    return False
