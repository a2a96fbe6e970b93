"""Several jobs that print into one file, one behind the other: what follows the end of one may be the next one's, or its own last words."""

from __future__ import annotations

from hpc_llm.causes.later import PARTS
from hpc_llm.parsing.aftermath import Aftermath
from hpc_llm.parsing.joining import merge
from hpc_llm.parsing.rules import Value
from hpc_llm.parsing.run import LogRun


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
    return after.is_later or (is_another(run.values.get("job_id"), after.job) and not _is_part(run, after))


def _is_part(run: LogRun, after: Aftermath) -> bool:
    """Whether the job behind the end of another is a part of it: their numbers are near each other, and both ended at once."""
    return after.is_at_once and abs(int(str(run.values["job_id"])) - int(after.job)) < PARTS


def rejoined(runs: list[LogRun], job: int | None) -> list[LogRun]:
    """The runs, each with the last words of its job; of a file that is one job's, `job`, what others are quoted with, too."""
    joined: list[LogRun] = []
    for run in runs:
        is_part = not is_own(run) or (job is not None and run.aftermath is not None and not run.has_steps)
        if joined and is_part:
            merge(joined[-1], run)
        else:
            joined.append(run)
    return joined
