"""An error of which the program says itself that it goes on: it leaves out the batch, or tries it again, smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from hpc_llm.causes.cause import STARTED, Sign

_GOES_ON = re.compile(
    rb"(?i)\battempting to recover\b"
    rb"|\b(?:skipping|ignoring|dropping) (?:(?:this|the|that|bad|current|whole|a|one|training|update|optimizer) ){0,3}"
    rb"(?:mini-?|micro-?)?(?:batch|sample|step|example|iteration|update)(?:es|s)?\b|\b(?:batch|step) (?:was |is )?skipped\b"
    rb"|\bretrying (?:(?:this|the|that|same) ){0,2}(?:mini-?|micro-?)?(?:batch|step)\b|\bretrying with (?:a )?(?:smaller|half|batch|torch\.cuda\.empty_cache)"
    rb"|(?:batch ?size|batch=|gradient accumulation|grad_accum)[^\n]{0,60}(?:(?:will be |was |is )?(?:de|in)creased|reduced) (?:from|to)\b"
    rb"|\b(?:reducing|decreasing|halving) [^\n]{0,40}\b(?:to|from|by)\b[ =:]{0,2}(?:batch[ =])?\d|\btrying (?:with )?(?:a )?(?:smaller )?batch[ _]size\b|\bbatch will be retrained\b"
    rb"|\bfall(?:s|ing)? back to (?:a |the )?(?:(?:smaller|lower|half|micro|mini|per-device|train|global|new) ){0,2}(?:micro-?|mini-?)?batch(?:es|[ _]?size)?\b"
    rb"|\bbatch[ _]?size[ :=]{0,2}\d{1,7} (?:does not|doesn't|did not|didn't|won't) fit\b[^\n]{0,30}\b(?:try|us)ing\b"
)
_PROCEEDS = re.compile(rb"(?:[.;,] {1,2}|^)(?:[Pp]roceeding|[Cc]ontinuing) without\b")
_RETRY = re.compile(rb"\bRetrying in [\d.]{1,8}s \[Retry \d{1,3}/\d{1,3}\]")
_FAILS = re.compile(rb"(?i)error|exception|timed out|fail|thrown while")
_LINES_OF_TRIES, _NEAR = 64, 1 << 12
_ADVISES = re.compile(rb"(?i)\b(?:try|consider|recommend\w*|suggest\w*|please|should|could|by) $")
"""What stands before the same words where they are an advice."""
_TABLE = re.compile(rb"[ \t]{0,8}(?:\||[-=]{8})|[ \t]*$")
"""A line of torch's summary of the memory, or an empty one: fairseq writes one for each GPU between the error and what it does."""
_OVERFLOW = b"OVERFLOW"
"""With it DeepSpeed and apex say that they skip a step because its gradients were too large."""
_LINES, _LINES_OF_TABLES = 3, 400
_LONGEST = 1 << 10
_WEAK = 44
"""Precedence: below an exception of which only the name is known."""
_CONFIDENCE = 0.5


OF_OTHERS = frozenset(
    ("walltime", "preempted", "cancelled", "node_fail", "submit_limit", "nan_loss", "loss_scale_collapse")
)
"""What the scheduler says, and what figures show: that is nothing that a program recovers from."""


def of_what_goes_on(cause: str, one: Sign, text: bytes, position: int) -> Sign:
    """The sign itself, or a weak one that the next step takes back where the program says that it goes on."""
    if cause in OF_OTHERS or not goes_on(text, position):
        return one
    confidence = min(one.confidence, _CONFIDENCE)
    return replace(one, confidence=confidence, precedence=_WEAK, survived_after=min(one.survived_after, STARTED))


def proceeds_without(cause: str, text: bytes, position: int) -> bool:
    """Whether the line at `position` is a warning that says that the program proceeds without what it misses, or tries again and gets it.

    >>> proceeds_without("model_missing", b"no file named a.json. Proceeding without it.\\n", 0)
    True
    """
    line = next(_lines_from(text, position), b"")
    return cause not in OF_OTHERS and (_PROCEEDS.search(line) is not None or _is_got_over(text, position))


def _is_got_over(text: bytes, position: int) -> bool:
    """Whether the hub's client says below that it tries again, and the first other line behind its tries tells of no failure.

    >>> log = b"MaxRetryError x\\nRetrying in 1s [Retry 1/5].\\n"
    >>> _is_got_over(log + b"Saved the model\\n", 0), _is_got_over(log + b"Traceback (most recent\\n", 0), _is_got_over(log, 0)
    (True, False, False)
    """
    if text.find(b"Retrying in ", position, position + _NEAR) < 0:
        return False
    retries = False
    for line in islice(_lines_from(text, position), 1, _LINES_OF_TRIES):
        if b"Traceback (" in line:
            return False
        if _RETRY.search(line):
            retries = True
        elif _FAILS.search(line):
            retries = False
        elif line.strip():
            return retries
    return False


def goes_on(text: bytes, position: int) -> bool:
    """Whether the line at `position` or one of the few below it says so.

    >>> goes_on(b"CUDA out of memory. Tried\\n| WARNING: attempting to recover from OOM\\n", 0)
    True
    >>> goes_on(b"CUDA out of memory. Tried\\nTry reducing batch size to 1\\n", 0)
    False
    """
    others = 0
    for line in islice(_lines_from(text, position), _LINES_OF_TABLES):
        if _says_so(line):
            return True
        others += not _TABLE.match(line)
        if others > _LINES:
            return False
    return False


def _says_so(line: bytes) -> bool:
    found = None if _OVERFLOW in line else _GOES_ON.search(line)
    return found is not None and _ADVISES.search(line, 0, found.start()) is None


def _lines_from(text: bytes, position: int) -> Iterator[bytes]:
    """The rest of the line at `position` and those behind it."""
    while position < len(text):
        end = text.find(b"\n", position)
        end = end if end >= 0 else len(text)
        yield text[position : min(end, position + _LONGEST)]
        position = end + 1
