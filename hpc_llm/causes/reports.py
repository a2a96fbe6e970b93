"""LSF's reports on jobs, of which each parts the output of one job from that of the next in a file to which several were appended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.attempts import Piece

_LITERAL = b"The output (if any) "
_SUBJECT = re.compile(rb"^Subject: Job (\d{1,18}): <[^\n]{0,400}> in cluster <", re.MULTILINE)
_ENDS = re.compile(rb"^The output \(if any\) (?:(?P<above>is above this job summary\.)|follows:)", re.MULTILINE)
"""Its last line, which says on which side of it the output stands."""


def are_several(pieces: Sequence[Piece]) -> bool:
    """Whether there are reports on more than one job."""
    jobs = {job for _, text in pieces if _LITERAL in text for job in _SUBJECT.findall(text)}
    return len(jobs) > 1


def begin_of_last(pieces: Sequence[Piece]) -> int:
    """Where that begins which is of the last job; -1 where no report parts it from another one."""
    behind, begin = -1, -1
    for position, text in pieces:
        for end in _ENDS.finditer(text) if _LITERAL in text else ():
            if end["above"]:
                begin, behind = max(begin, behind), position + end.end()
            else:
                begin = position + end.end()
    return begin
