"""What can be said of output in which nothing is recognised: where it ends."""

from __future__ import annotations

from collections.abc import Sequence

from hpc_llm.causes import counts, life
from hpc_llm.causes.cause import Role
from hpc_llm.causes.found import Found
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.outlived import TAKEN_DOWN
from hpc_llm.causes.program import OF_A_CHILD


def in_words(logs: Sequence[LogFindings], found: Sequence[Found], ended: bool) -> str:
    """What can be said where no cause is recognised."""
    if ended:
        late = (one for log in logs for one in log.found if one.is_root and one.cause.id in TAKEN_DOWN)
        return next((f"Training had come to its end before the job was ended ({one.text})." for one in late), "")
    if not logs:
        return ""
    if all(log.is_empty for log in logs):
        return "The output is binary data, not text." if any(log.is_binary for log in logs) else "The output is empty."
    if any(log.went_on for log in logs):
        return "What the evidence shows did not end it: the program wrote on for long, and came to an end in order."
    if any(log.ended_at is not None for log in logs) and any(one.sign.ends_job for one in found):
        return "Training had come to its end, and then the job failed: look at what it did next, such as saving, merging or another stage."
    cascades = [one.sign.source for one in found if one.sign.role is Role.CASCADE]
    if cascades and all(source == OF_A_CHILD.source for source in cascades):
        return "The process that had started this one ended, and left no word here."
    if cascades:
        return "Another rank died first and left no word here: its own output is the one to look at."
    if not any(log.has_steps for log in logs):
        return ""
    return _where_it_ends(logs)


def _where_it_ends(logs: Sequence[LogFindings]) -> str:
    """Of output that has steps, or bars that may be of something else, and no word on its end."""
    lines = [log.last_line[1].encode() for log in logs if log.last_line is not None]
    trains = any(log.trains for log in logs)
    if any(map(life.is_aside, lines)):
        return "The output ends with the loss of an evaluation, without an error."
    counted = [one for one in map(counts.of, lines) if one is not None]
    is_middle = any(not one for one in counted)
    if not is_middle and any(map(life.is_over, lines)):
        return "The output ends with a progress bar that has come to its end, without an error."
    if not all(any(life.steps(line + b"\n")) or not line for line in lines):
        what = "training steps" if trains else "progress bars"
        return f"The output stops after {what}, with lines of which no cause is known."
    if counted and not is_middle:
        return "The output ends with the last of the steps that it counts, without an error."
    where = (
        "with a progress bar" if not trains else "with a training step, of which it does not say whether it is the last"
    )
    if is_middle:
        where = "in the middle of training" if trains else "in the middle of a progress bar"
    return f"The output stops {where}, without an error."
