"""Several jobs that print into one file, one behind the other: what follows the end of one may be the next one's, or its own last words."""

from __future__ import annotations

import re
from itertools import pairwise

from hpc_llm.causes.later import PARTS
from hpc_llm.parsing.aftermath import Aftermath
from hpc_llm.parsing.joining import merge
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.run import OF_THE_JOB, LogRun

_STILL_ENDING = 4096
_OF_SRUN = re.compile(rb"(?:[^\w\n]{0,8}srun: [^\n]{0,1000}\n)*")


def end_of_last_words(text: bytes, position: int) -> int:
    """Where that ends which srun says, from `position` on, of the tasks that it had started.

    >>> end_of_last_words(b"srun: error: n1: task 0: Terminated\\nloading\\n", 0)
    36
    """
    said = _OF_SRUN.match(text, position)
    return said.end() if said is not None else position


def is_another(one: Value | None, other: Value | None) -> bool:
    """Whether these are the numbers of two jobs; a job of an array has a name beside its number.

    >>> is_another("304184", "310529"), is_another("304184", "304184"), is_another("304184_7", "304191"), is_another(None, "1")
    (True, False, False, False)
    """
    return str(one).isdigit() and str(other).isdigit() and one != other


def is_own(run: LogRun) -> bool:
    """Whether a run that begins behind the end of a job is one, and not what that job still had to say."""
    after = run.aftermath
    if after is None or run.has_steps or run.trains or run.is_programs:
        return True
    return (
        after.is_later
        or after.is_of_another_step
        or (is_another(run.values.get("job_id"), after.job) and not _is_part(run, after))
    )


def is_of_before(run: LogRun) -> bool:
    """Whether it is no run, with all its text known, but the end of the one before."""
    return not is_own(run) or (run.heads.is_bare and not run.has_steps)


def goes_on(run: LogRun, number: float | None, behind: int) -> bool:
    """Whether this is the next step of a run whose job was said to be over so many bytes before: processes have time to end, and samples
    say anything."""
    return behind <= _STILL_ENDING and run.goes_on(number)


def compare(run: LogRun, before: LogRun) -> None:
    """Let a run, if it stands behind the end of a job, be compared with how the one before it began."""
    if run.aftermath is not None:
        run.aftermath.opening = before.tail.begins_with


def follow(run: LogRun, before: LogRun) -> None:
    """A run begins; what it says behind the end of a job is read with what stands right above it."""
    compare(run, before)
    if run.aftermath is not None and run.aftermath.is_of_step:
        run.tail.above = before.tail.latest
    before.tail.latest = b""


def facts_of(run: LogRun) -> dict[str, Value]:
    """What holds for the job that it is a run of, and so for its next one."""
    known = {**run.inherited, **run.values}
    return {name: known[name] for name in OF_THE_JOB if name in known}


def _is_part(run: LogRun, after: Aftermath) -> bool:
    """Whether the job behind the end of another is a part of it: their numbers are near each other, and both ended at once."""
    return after.is_at_once and abs(int(str(run.values["job_id"])) - int(after.job)) < PARTS


def rejoined(runs: list[LogRun], job: int | None) -> list[LogRun]:
    """The runs, each with the last words of its job; of a file that is one job's, `job`, what others are quoted with, too."""
    joined: list[LogRun] = []
    _leave_begins_empty(runs)
    for run in runs:
        if joined:
            compare(run, joined[-1])
        is_part = is_of_before(run) or (job is not None and run.aftermath is not None and not run.has_steps)
        if joined and is_part:
            merge(joined[-1], run)
        else:
            joined.append(run)
    return joined


def _leave_begins_empty(runs: list[LogRun]) -> None:
    """Take the begin from runs of which two jobs may have told it: the one that wrote into the file at the same time has none of its own."""
    for run in runs:
        if run.heads.may_be_of_two and not run.has_steps:
            run.values.pop("started_at", None)
    for before, run in pairwise(runs):
        numbers = [one.values.get("job_id") for one in (before, run)]
        if is_another(*numbers) and before.heads.count > 1 and not run.heads.count:
            before.values.pop("started_at", None)
            run.values.pop("started_at", None)
