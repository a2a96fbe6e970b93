"""Bring the run folders and the scheduler together after something was cut short.

A job that no folder knows by its id is adopted; a folder of which the scheduler has nothing, a ghost, is cleared; of a
sweep that was submitted in part the missing members are submitted. Nothing is done on a guess, nor to what somebody else
made: it stays as it is, and says why. Every deed is claimed first, and everything is looked at again under the claim.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from uuid import uuid4

from hpc_llm.errors import ProfileError, RequestError, SubmissionError
from hpc_llm.records.files import read_json, read_own, reason_of
from hpc_llm.records.run import RunPaths, array_folder, is_run
from hpc_llm.runs.adoption import PATIENCE_S, Standing, Submitted, adopt, standings, written_by_others
from hpc_llm.runs.local_orphans import local_orphans
from hpc_llm.runs.sending import send
from hpc_llm.runs.wanted import same_place
from hpc_llm.schedulers.asking import Answers
from hpc_llm.schedulers.claim import claim_folder, claimed
from hpc_llm.schedulers.clock import file_age
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.ledger import note, notes_folder, vouches_for
from hpc_llm.schedulers.local.marks import living
from hpc_llm.schedulers.local.start import revoke_start
from hpc_llm.schedulers.runs import (
    INCOMING,
    answer_file,
    asking_file,
    is_run_of,
    others_in,
    read_identity,
    submitit_folder,
    take_back,
)
from hpc_llm.schedulers.scheduler import with_jobs
from hpc_llm.schedulers.submission import Submission, array_of, digest_of, submission_of
from hpc_llm.site.schedulers import Several
from hpc_llm.text.pasted import for_runs_in


class Deed(str, Enum):
    """What reconciling does with a run."""

    ADOPTED = "adopted"
    CLEARED = "cleared"
    SUBMITTED = "submitted"
    LEFT = "left as it is"
    UNKNOWN = "cannot be told"
    """Of a folder of runs: a scheduler that has jobs of it gives no answer."""


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
            _clear_staging(logs)
    return done


def make_way(
    logs: Path,
    run_ids: Collection[str],
    *,
    chosen: bool = True,
    schedulers: Collection[str] = (),
    dry_run: bool = False,
) -> None:
    """Clear what stands where runs of these ids are to be made, where the scheduler has nothing of it; all else stays.

    With `chosen` somebody chose the ids, so that a job whose folder was removed or renamed may print to one of them still;
    the silence of those to which the runs are to go, `schedulers` by name, is no leave. With `dry_run` nothing is cleared.

    Raises:
        RequestError: such a run is a job, or whether it is cannot be told now; or this machine still runs the script of an
            earlier run of that name, which writes into the same folder.
    """
    if chosen:
        _refuse_where_a_job_prints(logs.absolute(), set(run_ids), schedulers)
    standing = [RunPaths(logs.absolute() / run_id) for run_id in run_ids if is_run(logs / run_id)]
    if not standing:
        return
    found = standings(standing, patient=True, forgotten=True)
    if not dry_run:
        adopt(_known(found), Answers())
    for one in found:
        job = f" (job {one.identity.job_id})" if one.identity is not None and one.identity.job_id else ""
        if one.standing is not Standing.NOTHING or _is_over(one.run):
            why = f", and {_why(one)}" if one.standing is Standing.OPEN else ""
            told = (
                f"there is already a run {one.run.run_id}{job} in {logs}{why}. Leave --run-id out, or give another; "
                f"`hpc-llm status {one.run.run_id}` says what became of it."
            )
            raise RequestError(for_runs_in(logs, told))
        if others := others_in(one.run):
            told = f"there is already a run {one.run.run_id} in {logs}, with {others[0]} in its folder: leave --run-id out, or give another"
            raise RequestError(told)
    for members in [] if dry_run else _by_submission(found):
        _clear(members, forgotten=True)


def _refuse_where_a_job_prints(logs: Path, run_ids: set[str], schedulers: Collection[str]) -> None:
    """Two jobs must not write into one folder: one that is cut off from its folder writes there all the same."""
    told = [(each, *each.jobs_under(logs)) for each in with_jobs()]
    for one in (one for _, printing, _ in told for one in printing):
        if one.folder.name in run_ids and not is_run_of(one.folder, one.uuid):
            raise RequestError(_taken(f"job {one.job_id}", one.folder, one.job_id))
    for orphan in local_orphans(logs):
        if orphan.run_id in run_ids:
            where = f"process {orphan.script.pid} of this machine"
            raise RequestError(_taken(where, orphan.folder, orphan.job_id))
    for silent, complaint in ((each, said) for each, _, said in told if said is not None and each.name in schedulers):
        raise RequestError(
            f"whether a job still prints into a run of that id in {logs} cannot be told, for {silent.title} does not answer: "
            f"{complaint}. Leave --run-id out, or try again later."
        )


def _taken(what: str, folder: Path, job_id: str) -> str:
    return (
        f"{what} prints into {folder}, from which its run was removed or renamed. Give another --run-id, or end it first: "
        f"`hpc-llm cancel {job_id}`"
    )


def _known(found: Iterable[Submitted]) -> list[tuple[RunPaths, Identity]]:
    """Runs that have a job, with what is known of it by now."""
    return [(one.run, one.identity) for one in found if one.identity is not None and one.standing is Standing.HAS_JOB]


def _lacks_id(one: Submitted) -> bool:
    """Whether the job is known, and not written down."""
    return one.identity is not None and one.identity.has_job and not one.identity.is_recorded


def _adopt(one: Submitted, dry_run: bool) -> Reconciled:
    job_id = one.identity.job_id if one.identity else None
    if not dry_run and not adopt(_known([one]), Answers()):
        return Reconciled(one.run.run_id, Deed.LEFT, job_id, f"it is job {job_id}, and its folder cannot be written")
    return Reconciled(one.run.run_id, Deed.ADOPTED, job_id)


def _is_open(one: Submitted) -> bool:
    return one.standing is Standing.ASKING or (one.standing is Standing.OPEN and _is_incomplete(one.identity))


def _is_incomplete(identity: Identity | None) -> bool:
    """Whether there would be something to put right: a run of somebody else that has its job is none of our business."""
    return identity is not None and identity.has_job and identity.job_id is None


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
    wait = _wait_for(submission, members)
    if wait is not None:
        return [Reconciled(run.run_id, Deed.LEFT, why=wait) for run in runs]
    lost_its_queue = submission is not None and submission.facts.is_this_machine and any(one.why for one in members)
    if submission is None or not (lost_its_queue or _sweep(runs[0]) in begun):
        kept = {run: others[0] for run in runs if (others := others_in(run))}
        if kept:
            return [Reconciled(run.run_id, Deed.LEFT, why=_why_kept(kept.get(run))) for run in runs]
        if not dry_run and not _clear(members):
            return [Reconciled(run.run_id, Deed.LEFT, why="another command is at it") for run in runs]
        return [Reconciled(run.run_id, Deed.CLEARED, why="it never became a job") for run in runs]
    problem = _cannot_be_submitted(submission, runs)
    if problem:
        return [Reconciled(run.run_id, Deed.LEFT, why=problem) for run in runs]
    if dry_run:
        return [Reconciled(run.run_id, Deed.SUBMITTED, why="its sweep was submitted in part") for run in runs]
    return _submit(submission, members)


def _why_kept(other: str | None) -> str:
    """Why a run that never became a job is not cleared; `other` is what lies in its own folder, if anything."""
    if other is None:
        return "it never became a job, and a run of the same submission holds what was not made by submitting it"
    return f"it never became a job, and {other} in its folder was not made by submitting it: take out what you want, then remove the folder"


def _wait_for(submission: Submission | None, members: Sequence[Submitted]) -> str | None:
    """Why runs of this machine are neither submitted nor cleared yet: a machine that measures must not run two at a time."""
    if submission is None or not submission.facts.is_this_machine:
        return None
    here = living()
    beside = [one for uuid in {_uuid(each) for each in members} if (one := here.beside(uuid or "", submission.sweep))]
    if not beside:
        return None
    what = f"run {beside[0].folder.name}" if beside[0].uuid else "the queue"
    return f"{what} of the same request still goes on here (process {beside[0].pid}): reconcile again when that is over"


def _cannot_be_submitted(submission: Submission, runs: Sequence[RunPaths]) -> str | None:
    """Why these folders are not what was to be submitted: their scripts write where they were made."""
    written = [path for run in runs for path in written_by_others(run)]
    if written:
        return f"others can have written {written[0]}, so nothing of it is run: submit it anew"
    records = [read_json(run.job) or {} for run in runs]
    if [same_place(_made_in(run)) for run in runs] != [same_place(run.root) for run in runs]:
        return (
            "its folder was moved, or is reached by another way here, and its script names the old one: submit it anew"
        )
    try:
        _own_scripts(submission, runs)
    except (OSError, SubmissionError, ValueError) as error:
        return str(error)
    if submission.facts.several is Several.QUEUE:
        return None
    tasks = [record.get("array_task") for record in records]
    if submission.array is None:
        return None if len(runs) == 1 else "several folders claim to be the same job"
    links = array_folder(runs[0].root.parent, submission.array)
    expected = [(links / str(task)).resolve() for task in range(len(runs))]
    whole = tasks == list(range(len(runs))) and expected == [run.root.resolve() for run in runs]
    whole = whole and not (links / str(len(runs))).is_symlink()
    return None if whole else "members of its array are missing: submit them anew"


def _own_scripts(submission: Submission, runs: Sequence[RunPaths]) -> list[bytes]:
    """The scripts of the runs, which this user has submitted from there.

    Raises:
        SubmissionError: nothing proves that: the folders may have been unpacked, and then all that they say is their maker's word.
    """
    scripts = [read_own(run.script) for run in runs]
    if not vouches_for(submission, [str(_made_in(run)) for run in runs], list(map(digest_of, scripts))):
        raise SubmissionError(
            f"nothing in {notes_folder()} says that you submitted this very script from here, so it is not run: submit it anew"
        )
    return scripts


def _made_in(run: RunPaths) -> Path:
    """Where its script writes, as its record says."""
    return Path(str((read_json(run.job) or {}).get("run_dir")))


def _submit(submission: Submission, members: Sequence[Submitted]) -> list[Reconciled]:
    runs = [one.run for one in members]
    with _held(members) as is_ours:
        if not is_ours:
            return []  # somebody else was quicker
        try:
            scripts = _own_scripts(submission, runs)
            if submission.facts.is_this_machine and not all(revoke_start(one.run, _uuid(one) or "") for one in members):
                why = "it was started from another machine or container: look from there"
                return [Reconciled(run.run_id, Deed.LEFT, why=why) for run in runs]
            renewed = _renew(submission, runs, list(map(digest_of, scripts)))
            send(renewed, runs, scripts[0].decode(), keep=True)
        except OSError as error:
            why = f"its folder cannot be written: {reason_of(error)}"
            return [Reconciled(run.run_id, Deed.LEFT, why=why) for run in runs]
        except (SubmissionError, ProfileError, ValueError) as error:
            return [Reconciled(run.run_id, Deed.LEFT, why=str(error)) for run in runs]
    ids = [identity.job_id if (identity := read_identity(run)) else None for run in runs]
    return [Reconciled(run.run_id, Deed.SUBMITTED, job_id) for run, job_id in zip(runs, ids, strict=True)]


@contextmanager
def _held(members: Sequence[Submitted], forgotten: bool = False) -> Iterator[bool]:
    """Whether these runs are this process's alone, and still what they were when they were looked at.

    While Slurm was asked another command may have submitted them, or cleared them and made runs of the same names in their
    place: so all is looked at again once they are claimed.
    """
    first = members[0].run
    if not first.root.is_dir():
        yield False
        return
    with claimed(claim_folder(first, array_of(read_json(first.job) or {}))) as is_ours:
        yield is_ours and _are_as_before(members, forgotten)


def _are_as_before(members: Sequence[Submitted], forgotten: bool) -> bool:
    again = standings([one.run for one in members], forgotten=forgotten)
    return all(
        now.standing is Standing.NOTHING and _uuid(now) == _uuid(then) and not _is_over(now.run)
        for now, then in zip(again, members, strict=True)
    )


def _renew(submission: Submission, runs: Sequence[RunPaths], digests: Sequence[str]) -> Submission:
    """Make this process the one that submits, as a submission of its own: should the first one show up after all, it is
    told apart."""
    renewed = replace(submission, uuid=str(uuid4()), digests=tuple(digests))
    note(renewed, _made_in(runs[0]).parent, dict(zip((_made_in(run).name for run in runs), digests, strict=True)))
    folder = submitit_folder(runs[0], submission.array)
    for path in (asking_file(folder), answer_file(folder)):
        path.unlink(missing_ok=True)
    for run in runs:
        record = read_json(run.job) or {}
        record.pop("process", None)  # of the queue that is gone
        run.write(run.job, {**record, **renewed.intent(_made_in(run), record.get("array_task") or 0)})
        run.process.unlink(missing_ok=True)
    return renewed


def _clear(members: Sequence[Submitted], forgotten: bool = False) -> bool:
    """Remove the folders of one submission that never became a job; False where that is somebody else's to do."""
    with _held(members, forgotten) as is_ours:
        if is_ours:
            take_back([one.run for one in members], array_of(read_json(members[0].run.job) or {}), _uuid(members[0]))
    return is_ours


def _uuid(one: Submitted) -> str | None:
    return one.identity.uuid if one.identity else None


def _clear_staging(logs: Path) -> None:
    """Remove folders that a killed command was still making; those of a command that may live, or of others, stay."""
    for folder in logs.glob(f"{INCOMING}*"):
        seconds = None if folder.is_symlink() else file_age(folder)
        with contextlib.suppress(OSError):
            if seconds is not None and abs(seconds) > PATIENCE_S and folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)  # which follows no link that takes its place meanwhile
