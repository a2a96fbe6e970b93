"""Handing a submission to its scheduler, and what is left behind where that fails."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hpc_llm.errors import SubmissionError
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.adoption import adopt
from hpc_llm.schedulers.asking import ask
from hpc_llm.schedulers.claim import claim_folder, release
from hpc_llm.schedulers.identity import marked_name
from hpc_llm.schedulers.runs import read_identity, take_back
from hpc_llm.schedulers.scheduler import UnclearAnswer, find
from hpc_llm.schedulers.submission import Submission

_LATE_S = 10.0
"""So long a scheduler may take to show a job of which its command did not say that it was taken."""


def send(submission: Submission, runs: Sequence[RunPaths], script: str, *, keep: bool = False) -> str | None:
    """Submit `runs`, of which `script` is what the scheduler gets; returns what its command complained about although it has the job.

    Whoever made or held the runs has claimed them, so that nobody else acts on them meanwhile; the claim ends here. With `keep` the folders stay where the scheduler refuses: they were there before.

    Raises:
        SubmissionError: the scheduler has none of them, and no folder is left; or it is open whether it has, and they are.
    """
    try:
        return _send(submission, runs, script, keep)
    finally:
        release(claim_folder(runs[0], submission.array))


def _send(submission: Submission, runs: Sequence[RunPaths], script: str, keep: bool) -> str | None:
    try:
        find(submission.scheduler).submit(submission, runs, script)
        return None
    except UnclearAnswer as error:
        has_job = _has_job(submission, runs, _LATE_S)
        if has_job:
            return str(error)
        if has_job is None:
            name = marked_name(submission.job_name, submission.uuid)
            raise UnclearAnswer(
                f"{error} Whether {submission.facts.title} has taken the job {name} is open: `hpc-llm reconcile` finds out."
            ) from error
        _take_back(submission, runs, keep)
        raise SubmissionError(str(error)) from error
    except (SubmissionError, OSError) as error:
        if _has_job(submission, runs, 0.0, is_refused=True):
            return str(error)  # it reads like a refusal, and the scheduler's own list says otherwise
        _take_back(submission, runs, keep)
        raise


def _take_back(submission: Submission, runs: Sequence[RunPaths], keep: bool) -> None:
    if not keep:
        take_back(runs, submission.array, submission.uuid)


def _has_job(
    submission: Submission, runs: Sequence[RunPaths], seconds: float, *, is_refused: bool = False
) -> bool | None:
    """Whether the scheduler has the job of these runs, whose id is written down then; None where it does not answer.

    Slurm lists some of the jobs that it refuses, as ended before they began.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = [(run, one) for run in runs if (one := read_identity(run)) is not None]
        identities = [(run, one) for run, one in found if one.uuid == submission.uuid]
        answers = ask([one for _, one in identities])
        records = [record for _, one in identities if (record := answers.of(one).record_of(one)) is not None]
        if is_refused and records and all(record.never_started for record in records):
            return False
        if records or any(answers.job_id_of(one) for _, one in identities):
            adopt(identities, answers)
            return True
        doubt = next((said for _, one in identities if (said := answers.of(one).doubts.get(one.key))), None)
        if doubt is not None:  # a site had its comment rewritten, and nothing could be noted of it
            raise UnclearAnswer(f"The scheduler may have taken the job: {doubt}.")
        if not all(answers.of(one).answered for _, one in identities):
            return None
        if time.monotonic() >= deadline:
            return False
        time.sleep(1.0)
