"""A summary of the job below its output, as seff, jobstats and the epilogues of sites write it: how it ended in one word."""

from __future__ import annotations

import re

_HEADING = re.compile(rb"^[ \t]{0,40}(?:Slurm )?Job ?I[Dd][ \t]{0,24}:[ \t]{0,24}\d", re.MULTILINE)
_BEFORE = 800
"""Bytes of a summary before its state."""


def state(states: str) -> str:
    """The line that says one of `states`, a pattern."""
    return rf"^[ \t]{{0,40}}(?:Job )?State[ \t]{{0,24}}:[ \t]{{1,24}}(?:{states})(?![^\s(])[^\n]{{0,60}}"


def is_of_a_summary(text: bytes, position: int) -> bool:
    """Whether the line at `position` is one of a summary: with an exit code as seff writes it, or below the job's number.

    >>> is_of_a_summary(b"State: FAILED (exit code 1)", 0), is_of_a_summary(b"State: FAILED", 0)
    (True, False)
    >>> is_of_a_summary(b"  Job ID: 71\\n   State: FAILED\\n", 13)
    True
    """
    end = text.find(b"\n", position)
    line = text[position : end if end >= 0 else len(text)]
    return b"(exit code " in line or _HEADING.search(text, max(0, position - _BEFORE), position) is not None
