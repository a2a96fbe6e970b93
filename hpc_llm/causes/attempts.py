"""Further attempts in one file: a launcher or a script says that it starts its program again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hpc_llm.causes.found import Found
from hpc_llm.causes.lines import lines_with
from hpc_llm.text.launches import LAUNCHES

Piece = tuple[int, bytes]
"""Text and its position in the log, or in what was looked at of it."""

_LEAD = rb"^[^\w\n]{0,40}(?:\[?20\d\d[-/]\d\d[-/]\d\d[ T][\d:.,]{5,16}[^\w\n]{0,12})?(?:(?:INFO|WARN|WARNING|ERROR)\b[^\w\n]{0,8})?"
_OF_A_CALL = rb"(?![^\n]{0,100}(?:connect|download|fetch|request|http|lock\b|port\b|resolv|upload|socket|batch|sampl|prompt|task|api\b))"
_AGAIN = re.compile(
    rb"attempts left; will restart worker group"  # torchrun, and the launchers that are made of it
    rb"|" + _LEAD + _OF_A_CALL + rb"(?i:(?:(?:start|restart|re-?try|resum|launch|relaunch)ing\b[^\n\d]{0,40}[( ])?"
    rb"(?:attempt|retry|try|retrying|restart)\b(?: (?:no\.?|number))?[ :=#(]{0,3}(?!0*1\b)\d{1,4}\b[^\n]{0,60}$)"
    rb"|" + _LEAD + _OF_A_CALL + rb"(?i:(?:the )?(?:training|job|run|script|program|command|attempt(?: \d{1,4})?) (?:has |was )?"
    rb"(?:crash|fail|exit|died|kill)[^\n]{0,80}\b(?:re-?start|retry|trying again|resuming|starting over)[^\n]{0,60}$)",
    re.MULTILINE,
)  # fmt: skip
"""A line with which another attempt begins; `Attempt 1` is the first, and what a program tries again by itself is no attempt of a job."""
_WORDS = (b"attempt", b"restart", b"re-start", b"try", b"resum", b"starting over")
"""Each line with which one begins holds one of them, in letters of whatever case."""
_OVER = re.compile(
    rb"\*\*\* JOB \d{1,18}[^\n]{0,200} CANCELLED |ChildFailedError|exits with return code = |srun: error: [^\n]{1,120}: (?:Exited with|Killed|Segm|Abort)"
)
"""What a scheduler or a launcher says of all the processes that it had started."""
_OF_LAUNCHES = (*LAUNCHES, b"ChildFailedError", b"return code", b"srun: error")
_LAUNCHED_OR_OVER = re.compile(b"(?P<launch>" + b"|".join(map(re.escape, LAUNCHES)) + b")|" + _OVER.pattern)
_REFUSED = re.compile(
    rb"^(?:(?P<program>[\w.-]{1,80}): error: |Error: )(?P<why>[^\n]{1,1000})\n(?:(?:nohup: [^\n]{1,200})?\n){0,3}(?P<again>[Uu]sage: [^\n]{1,1000}\n)?",
    re.MULTILINE,
)
"""The last line of a program whose arguments its parser refused, and the first one of a program that was refused again."""
_NEAR = 1 << 12
_BLANK = re.compile(rb"\s*")


def begins_in(pieces: Sequence[Piece]) -> list[int]:
    """Where in `pieces` further attempts begin, by the words of who starts them. One of which nothing is to be seen says nothing of the
    end: before it the last one stands that does."""
    begins = [
        (position, text, line)
        for position, text in pieces
        for start, end in lines_with(text.lower(), _WORDS)
        for line in _AGAIN.finditer(text, start, end)
    ]
    last = pieces[-1][0] if pieces else 0
    refused = [position + begin for position, text in pieces for begin in _refused_again(text)]
    return [*refused, *_launched_again(pieces)] + [
        position + line.start()
        for position, text, line in begins
        if position < last or not _is_blank(text, text.find(b"\n", line.end()))
    ]


def _refused_again(text: bytes) -> list[int]:
    """Where a program that refused its arguments begins again with its usage. Ranks of one attempt have all the same to refuse."""
    if b"sage: " not in text or b"rror: " not in text:
        return []
    ends = list(_REFUSED.finditer(text))
    if len({one["why"] for one in ends}) < 2:
        return []
    return [
        one.start("again") for one in ends if one["again"] and (not one["program"] or one["program"] in one["again"])
    ]


def _launched_again(pieces: Sequence[Piece]) -> Iterator[int]:
    """Where a launcher begins behind the end of all that another one had started. The launchers of several nodes begin at once."""
    has_launched = is_over = False
    for position, text in pieces:
        for said in _LAUNCHED_OR_OVER.finditer(text) if any(words in text for words in _OF_LAUNCHES) else ():
            if said["launch"] is None:
                is_over = has_launched
            else:
                if is_over:
                    yield position + text.rfind(b"\n", 0, said.start()) + 1
                has_launched, is_over = True, False


def _is_blank(text: bytes, position: int) -> bool:
    """Whether nothing stands there and behind; below 0 where the text ends before."""
    return position < 0 or _BLANK.fullmatch(text, position) is not None


def is_over(text: bytes, position: int) -> bool:
    """Whether it says right before `position` that all the processes of an attempt have ended."""
    return _OVER.search(text, max(0, position - _NEAR), position) is not None


def last_of(begins: Sequence[int], found: Sequence[Found], *, is_followed: bool = False) -> int:
    """Behind which of `begins` stands what is of the last attempt, -1 where there is one alone.

    Of text that another run follows the last of `begins` may be that of the run: what counts is the last with a sign behind it.
    """
    roots = [one.position for one in found if one.is_root]
    return max((one for one in begins if not is_followed or any(root > one for root in roots)), default=-1)
