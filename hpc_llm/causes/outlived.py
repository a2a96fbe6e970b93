"""What a program trained on after, where it came to its end later and in another way."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.caught import OF_ONE_CALL
from hpc_llm.causes.cause import TRAINED_ON, Role
from hpc_llm.causes.found import Found

TAKEN_DOWN = frozenset(("walltime", "preempted", "cancelled"))
"""The scheduler ended the job: what the ranks say afterwards follows from it."""
WAITS = frozenset(("collective_timeout", "unreachable"))
SPEAKS_OF_OTHERS = re.compile(
    r"Dist(?:Backend|Network|Store)?Error|NCCL|nccl|c10d|[Gg]loo|Process ?[Gg]roup|[Ss]ocket|[Tt]imed? ?out|monitoredBarrier|[Cc]ollective|[Cc]onnection|Connect|route to host|\bssh\b"
)
"""An exception that may be the waiting itself."""
PASSED_ON = re.compile(r"CalledProcessError|ChildFailedError|ProcessRaisedException|SystemExit")
"""An exception by which a launcher says that its program failed."""
NO_ERROR = re.compile(
    r"\b[A-Z]\w{0,40}Warning: |(?<!NCCL )\bWARN(?:ING)?\b|\bINFO\b|\bDEBUG\b|: retry: |\[W(?:\d{3,4} [\d:.]{8,20})? ?\w{1,60}\.cpp:\d+\]"
    r"|^(?:\[rank\d+\]: ?|\d{1,5}: )?wandb: "
)
"""A line that calls itself a warning, an information or a further try; what W&B cannot do the program does without."""
BY_FIGURES = frozenset(("nan_loss", "loss_scale_collapse"))
"""What figures show, and no message."""
_ENDED_BY_SCHEDULER = frozenset(("walltime", "preempted", "node_fail", "host_oom"))
EXPLICIT = 0.9
"""So sure are the scheduler's own words."""
_FIRM = 45
"""Precedence of what ends a program by itself: that of an exception."""
_OTHERS_GO_ON = 1
"""So many more steps the other ranks show when one has failed."""


def is_schedulers(one: Found) -> bool:
    """Whether the scheduler says by itself what ended the job."""
    return one.cause.id in _ENDED_BY_SCHEDULER and one.sign.confidence >= EXPLICIT


def without_outlived(found: Sequence[Found]) -> Sequence[Found]:
    """Leave out what did not end the program: it trained on for more steps than ranks show that wait for one that failed, and what
    ended it is said behind them. What it caught and wrote down needs no step where the scheduler says by itself what ended the job."""
    ends = [f for f in found if f.is_root and f.advanced == 0 and f.position >= 0 and _is_an_end(f)]
    left = [f for f in found if not any(_is_outlived(f, end, found) for end in ends)] if ends else found
    return left if len(left) < len(found) else found


def _is_an_end(one: Found) -> bool:
    if is_schedulers(one):
        return True
    is_firm = one.precedence >= _FIRM and one.cause.id not in TAKEN_DOWN | WAITS | BY_FIGURES
    return is_firm and not any(words.search(one.text) for words in (SPEAKS_OF_OTHERS, PASSED_ON, NO_ERROR))


def _is_outlived(one: Found, end: Found, found: Sequence[Found]) -> bool:
    if not one.is_root or one.cause.id in TAKEN_DOWN | BY_FIGURES or one.sign.survived_after > TRAINED_ON:
        return False
    is_told = one.is_raised and not one.ends_process and (end.ends_process or is_schedulers(end))
    if (one.cause is end.cause and not is_told) or one.file != end.file or not 0 <= one.position < end.position:
        return False
    if one.caught_at is not None and one.cause.id in OF_ONE_CALL and is_schedulers(end):
        return not any(_fails_between(f, one, end) for f in found)
    is_little = is_told or NO_ERROR.search(one.text) or _is_caught_before(one, end)
    least = 1 if is_little else 1 + _OTHERS_GO_ON
    return one.advanced >= least and not any(_fails_between(f, one, end) for f in found)


def _is_caught_before(one: Found, end: Found) -> bool:
    """Whether no traceback and no end of a process stands with it, before all steps, and an exception ended the program behind them."""
    is_end = end.is_raised and end.ends_process
    return is_end and one.is_before_steps and not one.is_raised and not one.ends_process


def _fails_between(other: Found, one: Found, end: Found) -> bool:
    """Whether something else says between the two, behind the last step, that a process died."""
    is_between = other.file == one.file and one.position < other.position < end.position
    return is_between and other.advanced == 0 and other.sign.role is not Role.ROOT
