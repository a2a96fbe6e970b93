"""What stands behind a training that came to its end, and harmed nothing: a shell misses a command and its script goes on, the
kernel's log tells of another time, a test says that it expected its error, and a sample holds what a model read or wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.attempts import Piece
from hpc_llm.causes.found import Found
from hpc_llm.causes.later import ends_in_order
from hpc_llm.causes.program import NONE
from hpc_llm.causes.verdict import is_of_shell

_OF_THE_KERNEL = re.compile(
    r"(?:[\w.-]{1,60}: )?(?:\[ {0,6}\d{1,9}\.\d{3,6}\] |\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} kernel: )"
)
"""How dmesg and the system's log begin a line: both hold all that the node has seen, of each job."""
_EXPECTED = re.compile(
    rb"(?i)\b(?:errors?|exceptions?|tracebacks?|failures?|crash|messages?)\b[^\n]{0,24} (?:is|are|was|were) (?:expected|intended|intentional|deliberate)\b(?! (?:if|when|unless|only|in|on|for)\b)"
    rb"|\b(?:the|this|an?|with|as|raised|got) (?:expected|intended|simulated|deliberate|intentional) (?:error|exception|failure|crash)\b|\bself-?test (?:has )?(?:passed|succeeded)\b"
)
"""What a test says below an error that it brought about."""
_SPEAKERS = rb"(?:user|human|assistant|question|answer|response|prompt|completion|instruction)"
_LABEL = re.compile(
    rb"(?i)[ \t]{0,8}[#*=<\[(\"'|-]{0,8} {0,2}(?:" + _SPEAKERS + rb"(?: ?[#\d]{1,6})?[\]>*|\"')]{0,4} {0,2}[:>]"
    rb"|(?:(?:the|model|eval|test|some|example) ){0,2}(?:samples?|generated|generations?|outputs?|completions?|responses?|answers?|predictions?|examples?)"
    rb"(?: (?:samples?|outputs?|generations?|texts?|answers?|responses?|completions?)){0,2}(?: ?[#\d]{1,6})? {0,2}[:#*=>\])\"'|-]{0,8}[ \t]{0,8}$)"
)
"""A heading of samples, or the one who speaks in them."""
_TURN = re.compile(rb"(?i)[ \t]{0,8}[#*<\[|]{0,4} {0,2}" + _SPEAKERS + rb"\b[^\n:>]{0,6}[:>]")
_FENCE = re.compile(rb"[ \t]{0,8}(?:```|~~~)")
_SAVES = re.compile(
    rb"(?i)\b(?:model|checkpoint|weights|adapter|tokenizer|samples|generations)\b[^\n]{0,60}\bsaved\b|\b(?:saved|saving|wrote|writing)\b[^\n]{0,60}\b(?:model|checkpoint|weights|adapter|tokenizer|samples|generations)\b"
)
_LINES, _NEAR = 24, 1 << 12
_PIECES = 4
_BELOW = 8
"""Lines below an error in which a test says that it expected it."""


def without_harmless(found: list[Found], firm_at: int | None, pieces: Sequence[Piece]) -> list[Found]:
    """Leave out such lines behind the end of training at `firm_at`, where nothing else failed and the output comes to its end in order."""
    late = [one for one in found if firm_at is not None and one.position > firm_at and one.cause is not NONE]
    if not late or not all(_is_harmless(one, pieces) for one in late):
        return found
    last = max(one.position for one in late)
    is_well = any(one.cause is NONE and one.position > last for one in found) or _is_in_order(last, pieces)
    return [one for one in found if one not in late] if is_well else found


def _is_in_order(position: int, pieces: Sequence[Piece]) -> bool:
    """Whether what stands behind is a script's or a program's own to the end, with a word that it did what it should."""
    return ends_in_order(pieces, position) or ends_in_order(pieces, position, words=_SAVES)


def _is_harmless(one: Found, pieces: Sequence[Piece]) -> bool:
    if one.sign.ends_job or one.position < 0:
        return False
    if is_of_shell(one) or (one.cause.undone_by_end and _OF_THE_KERNEL.match(one.text)):
        return True
    above, below = _around(one.position, pieces)
    return any(map(_EXPECTED.search, below[:_BELOW])) or _is_quoted(one, above, below)


def _is_quoted(one: Found, above: Sequence[bytes], below: Sequence[bytes]) -> bool:
    """Whether it stands in a sample: below a heading of samples or one who speaks, and, where a traceback ends with it, before the next one
    who does; or in a fence below such a line."""
    labels = [number for number, line in enumerate(above) if _LABEL.match(line)]
    if not labels:
        return False
    fences = sum(_FENCE.match(line) is not None for line in above[labels[-1] :])
    if fences % 2:
        return any(map(_FENCE.match, below))
    return any(map(_TURN.match, below)) if one.is_raised else not one.ends_process


def _around(position: int, pieces: Sequence[Piece]) -> tuple[list[bytes], list[bytes]]:
    """The lines near above the one at `position`, and below it."""
    for number, (begin, text) in enumerate(pieces):
        at = position - begin
        if 0 <= at < len(text):
            start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
            above = [one[-_NEAR:] for _, one in pieces[max(0, number - _PIECES) : number]]
            below = [one[:_NEAR] for _, one in pieces[number + 1 : number + 1 + _PIECES]]
            above.append(text[max(0, start - _NEAR) : start])
            below.insert(0, text[end + 1 : end + 1 + _NEAR] if end >= 0 else b"")
            return b"".join(above).splitlines()[-_LINES:], b"".join(below).splitlines()[:_LINES]
    return [], []
