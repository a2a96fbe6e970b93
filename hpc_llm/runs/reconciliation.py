"""Bring the run folders and the scheduler together after something was cut short.

A job that no folder knows by its id is adopted; a folder of which the scheduler has nothing, a ghost, is cleared; of a
sweep that was submitted in part the missing members are submitted. Nothing is done on a guess: what cannot be told stays
as it is, and says why.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hpc_llm.errors import RequestError, SubmissionError
from hpc_llm.run import RunPaths, is_run, read_json, write_json
from hpc_llm.runs.adoption import PATIENCE_S, Standing, Submitted, adopt, standings
from hpc_llm.runs.claim import claimed
from hpc_llm.runs.scheduler import Answer, ask
from hpc_llm.submit.identity import Identity
from hpc_llm.submit.local import submit_local
from hpc_llm.submit.runs import INCOMING, answer_file, asking_file, read_identity, submitit_folder, take_back
from hpc_llm.submit.slurm import submit_slurm
from hpc_llm.submit.submission import Submission, submission_of


class Deed(str, Enum):
    """What reconciling does with a run."""

    ADOPTED = "adopted"
    CLEARED = "cleared"
    SUBMITTED = "submitted"
    LEFT = "left as it is"


@dataclass(frozen=True)
class Reconciled:
    """What was, or with a dry run would be, done with one run."""

    run_id: str
    deed: Deed
    job_id: str | None = None
    why: str = ""


def reconcile(runs: Sequence[RunPaths], *, dry_run: bool = False) -> list[Reconciled]:
    """Put right what was cut short among `runs`; runs with nothing to put right are not in the answer."""
    found = standings(runs, patient=True)
    done = [_adopt(one, dry_run) for one in found if one.standing is Standing.HAS_JOB and _lacks_id(one)]
    done += [Reconciled(one.run.run_id, Deed.LEFT, why=_why(one)) for one in found if _is_open(one)]
    begun = {_sweep(one.run) for one in found if one.standing is Standing.HAS_JOB} - {None}
    nothing = [one for one in found if one.standing is Standing.NOTHING and not _is_over(one.run)]
    for members in _by_submission(nothing):
        done += _submit_or_clear(members, begun, dry_run)
    if not dry_run:
        for logs in {run.root.parent for run in runs}:
            _sweep_staging(logs)
    return done


def make_way(logs: Path, run_ids: Iterable[str]) -> None:
    """Clear the ghosts that stand where runs of these ids are to be made; a run that is, or may be, a job stays.

    Raises:
        RequestError: whether such a run is a job cannot be told now.
    """
    standing = [RunPaths(logs.absolute() / run_id) for run_id in run_ids if is_run(logs / run_id)]
    if not standing:
        return
    found = standings(standing, patient=True)
    adopt(_known(found), Answer())
    for one in found:
        if one.standing is Standing.OPEN:
            raise RequestError(f"there is already a run {one.run.run_id} in {logs}, and {_why(one)}")
    for members in _by_submission([one for one in found if one.standing is Standing.NOTHING]):
        if not any(_is_over(one.run) for one in members):
            _clear(members)


def adopt_unclear(runs: Sequence[RunPaths], seconds: float = 10.0) -> bool:
    """Whether Slurm has the job of these runs although sbatch did not say so; then its id is written down."""
    deadline = time.monotonic() + seconds
    while True:
        identities = [one for run in runs if (one := read_identity(run)) is not None]
        answer = ask(identities)
        if any(one.job_id is not None or one.key in answer.job_ids for one in identities):
            adopt(zip(runs, identities, strict=False), answer)
            return True
        if time.monotonic() > deadline or not answer.answered:
            return False
        time.sleep(1.0)


def _known(found: Iterable[Submitted]) -> list[tuple[RunPaths, Identity]]:
    """Runs that have a job, with what is known of it by now."""
    return [(one.run, one.identity) for one in found if one.identity is not None and one.standing is Standing.HAS_JOB]


def _lacks_id(one: Submitted) -> bool:
    """Whether the job is known, and not written down."""
    return one.identity is not None and not one.identity.is_recorded


def _adopt(one: Submitted, dry_run: bool) -> Reconciled:
    if not dry_run:
        adopt(_known([one]), Answer())
    return Reconciled(one.run.run_id, Deed.ADOPTED, one.identity.job_id if one.identity else None)


def _is_open(one: Submitted) -> bool:
    return one.standing is Standing.ASKING or (one.standing is Standing.OPEN and one.identity is not None)


def _why(one: Submitted) -> str:
    return one.why or f"it {one.standing.value}"


def _is_over(run: RunPaths) -> bool:
    """Whether it left anything of an end, or was cancelled before it began: then there is something to keep."""
    return any(path.exists() for path in (run.exit, run.result, run.cancelled, run.steps))


def _sweep(run: RunPaths) -> str | None:
    sweep = (read_json(run.job) or {}).get("sweep")
    return sweep if isinstance(sweep, str) else None


def _by_submission(found: Sequence[Submitted]) -> list[list[Submitted]]:
    """Those of one submission together, in the order of their tasks; one without a record of it stands alone."""
    groups: dict[str, list[Submitted]] = {}
    for one in found:
        uuid = one.identity.uuid if one.identity else None
        groups.setdefault(uuid or one.run.run_id, []).append(one)
    for members in groups.values():
        members.sort(key=lambda one: (one.identity.array_task or 0) if one.identity else 0)
    return list(groups.values())


def _submit_or_clear(members: Sequence[Submitted], begun: set[str | None], dry_run: bool) -> list[Reconciled]:
    """Submit what is missing of a sweep that was begun; of anything else that never was a job only the plan is there."""
    runs = [one.run for one in members]
    submission = submission_of(read_json(runs[0].job) or {})
    wanted = submission is not None and (
        _sweep(runs[0]) in begun or (submission.scheduler == "local" and _queue_died(members))
    )
    if submission is None or not wanted:
        if not dry_run and not _clear(members):
            return []  # somebody else was quicker
        return [Reconciled(run.run_id, Deed.CLEARED, why="it never became a job") for run in runs]
    if dry_run:
        return [Reconciled(run.run_id, Deed.SUBMITTED, why="its sweep was submitted in part") for run in runs]
    return _submit(submission, runs)


def _queue_died(members: Sequence[Submitted]) -> bool:
    """Whether they waited in a local queue that is gone, rather than never having been queued."""
    return any(one.why for one in members)


def _submit(submission: Submission, runs: Sequence[RunPaths]) -> list[Reconciled]:
    folder = submitit_folder(runs[0], submission.array)
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder) as is_ours:
        # Whoever had the claim a moment ago may have submitted them.
        if not is_ours or any(one.standing is not Standing.NOTHING for one in standings(runs)):
            return []
        try:
            _renew(submission, runs)
            if submission.scheduler == "local":
                submit_local(runs)
            else:
                submit_slurm(submission, runs)
        except SubmissionError as error:
            return [Reconciled(run.run_id, Deed.LEFT, why=str(error)) for run in runs]
    ids = [identity.job_id if (identity := read_identity(run)) else None for run in runs]
    return [Reconciled(run.run_id, Deed.SUBMITTED, job_id) for run, job_id in zip(runs, ids, strict=True)]


def _renew(submission: Submission, runs: Sequence[RunPaths]) -> None:
    """Make this process the one that submits: whoever looks meanwhile sees that it is under way."""
    folder = submitit_folder(runs[0], submission.array)
    for path in (asking_file(folder), answer_file(folder)):
        path.unlink(missing_ok=True)
    for run in runs:
        record = read_json(run.job) or {}
        write_json(run.job, {**record, **submission.intent(run.run_id, record.get("array_task") or 0)})
        run.process.unlink(missing_ok=True)


def _clear(members: Sequence[Submitted]) -> bool:
    """Remove the folders of one submission that never became a job; False where that is somebody else's to do.

    Between the look and this moment another command may have cleared the ghost and made a run of the same name in its
    place. So the folder is claimed first, and then has to hold the very submission that was looked at.
    """
    first = members[0]
    with claimed(first.run.root) as is_ours:
        if not is_ours or _uuid(first.run) != (first.identity.uuid if first.identity else None):
            return False
        array = (read_json(first.run.job) or {}).get("array")
        take_back([one.run for one in members], array if isinstance(array, str) else None)
    return True


def _uuid(run: RunPaths) -> str | None:
    identity = read_identity(run)
    return identity.uuid if identity else None


def _sweep_staging(logs: Path) -> None:
    """Remove folders that a killed command was still making; those of a command that may live stay."""
    for folder in (logs / INCOMING).glob("*"):
        try:
            if time.time() - folder.stat().st_mtime > PATIENCE_S:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue
