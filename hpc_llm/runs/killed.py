"""A process that was killed, and by whom: the kernel counts what it kills for lack of memory, and the script reads the count. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.causes.cause import Role
from hpc_llm.causes.found import Found
from hpc_llm.causes.verdict import SURE
from hpc_llm.runs.fields import Fields
from hpc_llm.runs.records import Records

_COUNTED = 0.9
_PRECEDENCE = 43
"""Of the count: above a bare word that something was killed, below all that names another reason."""
_BY_OTHERS = (
    "a process was killed (SIGKILL), and not by the kernel of its node for lack of memory: by a person, a launcher, or a program "
    "of the site"
)


def with_the_count(found: Iterable[Found], records: Records) -> list[Found]:
    """The signs of an ended run, where guesses that memory ran out are held against what the kernel counted.

    The count is of the node of the script, whose other jobs are in it: one that stands still refutes the guess for a run on one
    node, and one that moved makes it likely.
    """
    given = list(found)
    count = records.exit.oom_kills if records.exit is not None else None
    if count is None or not any(_is_guess(one) for one in given):
        return given
    if count:
        return [_likely(one, count) if _is_guess(one) else one for one in given]
    if Fields(records.plan).whole("nodes") != 1:
        return given
    # A launcher tells the other ranks to stop: that they did is no word on who ended the first.
    stopped = records.exit is not None and records.exit.signal is None
    return [_refuted(one) if _is_guess(one) else one for one in given if not (stopped and _is_told_to_stop(one))]


def _is_told_to_stop(one: Found) -> bool:
    return one.cause.id == "cancelled" and one.file.startswith("failures/") and one.sign.confidence < SURE


def _is_guess(one: Found) -> bool:
    """Whether it says that something was killed, and no more."""
    return one.is_root and one.cause.id == "host_oom" and one.sign.confidence < SURE and one.precedence < _PRECEDENCE


def _likely(one: Found, count: int) -> Found:
    sign = replace(one.sign, confidence=_COUNTED, precedence=_PRECEDENCE)
    killed = "a process" if count == 1 else f"{count} processes"
    reason = f"a process was killed (SIGKILL), and the kernel of the node killed {killed} for lack of memory meanwhile"
    return replace(one, sign=sign, reason=reason)


def _refuted(one: Found) -> Found:
    sign = replace(one.sign, role=Role.CONFIRMATION, confidence=0.5, remedy=None)
    return replace(one, cause=BY_ID["unknown"], sign=sign, reason=_BY_OTHERS)
