"""Helpers that a script ends itself when its work is done: a server, a cluster of Ray's, a monitor. That they were killed says nothing of memory,
and that their step was cancelled nothing of a person."""

from __future__ import annotations

import re

_LINES, _LONGEST = 32, 160
_ENDED = re.compile(
    rb"^(?:[^\n]{0,12}(?:srun|slurmstepd)(?:-[\w.-]{1,80})?: |[^\n\"]{1,160}: line \d+: +\d+ +(?:Killed|Terminated)\b|(?:Killed|Terminated)$|[ \t]*$)"
)
"""What Slurm and the shell say of what was ended."""
_ENDS = re.compile(
    rb"(?i)\b(?:(?:force[- ])?(?:stop(?:ping)?|kill(?:ing)?|terminat(?:e|ing)|shut(?:ting)? ?down|tear(?:ing)? down|clean(?:ing)? ?up)|attempting graceful)\b"
    rb"(?P<what>[^\n]{0,60}?\b(?:ray|clusters?|\w*servers?|\w*monitor\w*|loggers?|watch\w*|background|helpers?|heads?|daemons?|services?|tensorboard|vllm|sglang"
    rb"|jupyter|redis|dask|spark|scheduler|mps|dcgm\w*|proxy|router|tunnel|sidecars?|containers?|instances?|nvidia-smi|samplers?|srun)\b)?"
)
"""How a script says that it ends one."""
_FOR_A_REASON = re.compile(
    rb"(?i)\b(?:signal|sig[a-z]{3,4}|interrupt\w*|error|exception|fail\w*|abort\w*|because|due to|after|timed? ?out|memory|early|cancel\w*|preempt\w*|limit|deadline)\b"
)
_SUCCESS = re.compile(
    rb"(?i)\bexit(?:ed)?[ _]?(?:with )?(?:code|status)?[ :=]{1,3}0\b|\b(?:completed?|finished|succeeded|success(?:ful(?:ly)?)?|done)\b"
)
_NO_SUCCESS = re.compile(rb"(?i)\b(?:not|never|un\w+|fail\w*|error\w*|warning|code:? [1-9]\d*|status:? [1-9]\d*)\b")


def is_ended_from_elsewhere(text: bytes, position: int) -> bool:
    """Whether the script does not say right above the line at `position` that it ends a helper, or after its success whatever was left.

    >>> log = b"Stopping the server\\nrun.sh: line 9: 77 Killed   vllm serve\\n"
    >>> is_ended_from_elsewhere(log, 20), is_ended_from_elsewhere(log[20:], 0)
    (False, True)
    """
    at, ends = text.rfind(b"\n", 0, position) + 1, False
    for _ in range(_LINES):
        if at == 0:
            return True
        end, at = at - 1, text.rfind(b"\n", 0, at - 1) + 1
        line = text[at:end].strip()
        if _ENDED.match(line):
            continue
        if len(line) > _LONGEST:
            return True
        said = _ENDS.search(line)
        ends = ends or said is not None
        if said is not None and _FOR_A_REASON.search(line):
            return True
        if (said is not None and said["what"]) or (ends and _SUCCESS.search(line) and not _NO_SUCCESS.search(line)):
            return False
        if said is None:
            return True
    return True
