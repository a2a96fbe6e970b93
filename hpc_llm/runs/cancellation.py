"""Ending runs on request: jobs that are proven to be theirs, and nothing else."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hpc_llm.errors import RequestError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import Outcome, RunPaths, is_run
from hpc_llm.runs.adoption import Standing, is_own, standings, why_not_own
from hpc_llm.runs.local_orphans import LocalOrphan, local_orphans
from hpc_llm.runs.local_process import process_in
from hpc_llm.runs.statuses import RunStatus, status
from hpc_llm.schedulers.asking import Answers, ask, queued
from hpc_llm.schedulers.claim import claim_folder, claimed, is_claimed
from hpc_llm.schedulers.identity import Identity, uuid_in_comment
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.ledger import is_noted, is_noted_elsewhere
from hpc_llm.schedulers.local.marks import Living, Marked, end_run, living
from hpc_llm.schedulers.process import end_group, is_alive, place_of
from hpc_llm.schedulers.runs import in_words_of_copy, original_of, read_identity
from hpc_llm.schedulers.scheduler import Scheduler, find, with_jobs
from hpc_llm.schedulers.submission import array_of
from hpc_llm.text.pasted import for_runs_in

_UNTOUCHED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUE_HOLD", "REQUEUED")
_LOOKS_S = (0.2, 0.8, 2.0, 0.0)
"""What is waited after each look at the queue: ending a job takes it a moment."""


@dataclass(frozen=True)
class Cancellation:
    """What cancelling did to one run."""

    run_id: str
    was_over: bool
    """It had ended before; nothing was done."""
    outcome: str | None
    """How it had ended, if it had."""
    job_id: str | None = None
    problem: str | None = None
    """Why it could not be cancelled; nothing was done."""
    reason: str | None = None
    """What is known of its end, where it was over."""


def cancel(runs: Sequence[RunPaths]) -> list[Cancellation]:
    """Cancel those of `runs` that are not over: jobs one request a submission, those of this machine by their processes.

    A job is ended only where the scheduler's own answer proves that it is the run's. What cannot be cancelled says why, and
    the others are cancelled all the same.
    """
    before = dict(zip(runs, status(runs), strict=True))
    ghosts = {run for run, state in before.items() if state.outcome is Outcome.UNKNOWN and _never_was_a_job(run)}
    problems = {run: why for run in ghosts if (why := _give_up(run)) is not None}
    going = {run: read_identity(run) for run, state in before.items() if not state.is_over}
    local: dict[RunPaths, Identity] = {}
    jobs: dict[RunPaths, Identity | None] = {}
    for run, identity in going.items():
        if not is_own(run):  # nor is what it says of processes and jobs to be believed
            problems[run] = f"{why_not_own(run)}: nothing was done"
        elif identity is not None and (original := _original_of(run, identity)) is not None:
            problems[run] = f"{in_words_of_copy(run, original)}: cancel that"
        elif identity is not None and is_noted_elsewhere(identity):
            problems[run] = (
                "you made the submission that its record names for other runs, so nothing was done: cancel those"
            )
        elif identity is not None and not identity.has_job:
            local[run] = identity
        else:
            jobs[run] = identity
    over, refused = _cancel_jobs(jobs, before)
    problems |= _cancel_local(local) | refused
    # What ended in between may have left more by now than when it was looked at.
    vague = [
        run for run, state in before.items() if run in over or (state.outcome is Outcome.UNKNOWN and run not in ghosts)
    ]
    now = before | dict(zip(vague, status(vague), strict=True)) if vague else before
    return [
        Cancellation(run.run_id, False, None, problem=problems.get(run))
        if run in ghosts
        else _cancellation(state, problems.get(run), over.get(run))
        for run, state in now.items()
    ]


def _original_of(run: RunPaths, identity: Identity) -> Path | None:
    return original_of(run, identity, (read_json(run.experiment) or {}).get("run_id"))


def _cancel_jobs(
    going: Mapping[RunPaths, Identity | None], before: Mapping[RunPaths, RunStatus]
) -> tuple[dict[RunPaths, str], dict[RunPaths, str]]:
    """End the jobs of these runs that the queue lists as theirs; the state of those that were over, and why others stay."""
    answers = ask([one for one in going.values() if one is not None])
    identities = {run: _with_job(one, answers) for run, one in going.items()}
    here = [
        one for one in identities.values() if one is not None and one.uuid and answers.of(one).belongs_to(one) is None
    ]
    listed, complaints = queued(here)
    over: dict[RunPaths, str] = {}
    problems: dict[RunPaths, str] = {}
    jobs: dict[tuple[str, str | None], dict[RunPaths, Identity]] = {}
    for run, identity in identities.items():
        record = listed.get(identity.key) if identity is not None else None
        complaint = complaints.get(identity.scheduler, "") if identity is not None else ""
        last = answers.of(identity).record_of(identity) if identity is not None and not complaint else None
        last = record or last  # it may have ended since, and accounting learns that late
        if identity is not None and record is not None and record.user_id not in (None, os.getuid()):
            problems[run] = f"job {identity.job_id} is of user {record.user_id}: theirs to cancel"
        elif identity is not None and identity.job_id is not None and record is not None and record.is_live:
            # Where it was renamed, or a list prints it otherwise, a filter by name would find nothing and say nothing.
            name = record.job_name if record.job_name == identity.job_name else None
            jobs.setdefault((identity.scheduler, name), {})[run] = identity
        elif last is not None and last.is_revoked:
            problems[run] = "another cluster of the federation has its job: cancel it there"
        elif last is not None and not last.is_live:
            over[run] = last.state
        else:
            problems[run] = for_runs_in(run.root.parent, _unproven(identity, answers, complaint, before[run]))
    for (scheduler, name), of_name in jobs.items():
        problems |= _end(of_name, find(scheduler), name)
    problems |= _still_there(
        {run: one for of_name in jobs.values() for run, one in of_name.items() if run not in problems}
    )
    return over, problems


def _with_job(identity: Identity | None, answers: Answers) -> Identity | None:
    """The same, with the job id that the scheduler told."""
    job_id = answers.job_id_of(identity) if identity is not None else None
    return identity if identity is None or job_id is None else identity.with_job(job_id)


def cancel_jobs(job_id: str) -> list[Cancellation]:
    """Cancel the job of that id of which there is no run, or all members of the array that has it. Raises as `cancel_job` does."""
    askable = [each for each in with_jobs() if each.is_job_id(job_id)]
    strays = [(member, each, record) for each in askable for member, record in each.members(job_id).items()]
    if not strays:
        return [cancel_job(job_id)]
    orphans = [one for one in local_orphans() if one.job_id == job_id]
    alive = {each: record for _, each, record in strays if record.is_live}
    _refuse_to_choose(job_id, orphans, list(alive.items()))
    if orphans:
        return [_cancel_orphan(one) for one in orphans]
    for stray in strays:
        _refuse_a_strangers(*stray)
    return [_end_stray(*stray) for stray in strays]


def cancel_job(job_id: str) -> Cancellation:
    """Cancel a job of ours whose run folder is gone: of a scheduler, or of this machine's local queue.

    Raises:
        RequestError: nothing proves that the job is of hpc-llm, or of this user.
    """
    orphans = [one for one in local_orphans() if one.job_id == job_id]
    asked = [(each, *each.find_job(job_id)) for each in with_jobs() if each.is_job_id(job_id)]
    found = [(each, record) for each, record, _ in asked if record is not None]
    if orphans or len(found) > 1:
        _refuse_to_choose(job_id, orphans, found)
    if orphans:
        return _cancel_orphan(orphans[0])
    if not found:
        rest = [f"and {each.title} does not answer: {' '.join(said.split())}" for each, _, said in asked if said]
        rest = rest or [f"nor a job of that id in {each.title}'s queue" for each, _, _ in asked]
        raise RequestError(
            f"there is no run of job {job_id}, as `hpc-llm status` shows it, in that folder of runs (--logs DIR names "
            f"another){''.join(f', {one}' for one in rest)}."
        )
    return _cancel_stray(job_id, *found[0])


def _cancel_stray(job_id: str, scheduler: Scheduler, record: JobRecord) -> Cancellation:
    """Cancel a job of which there is no run, if it says itself that it is ours."""
    _refuse_a_strangers(job_id, scheduler, record)
    return _end_stray(job_id, scheduler, record)


def _refuse_a_strangers(job_id: str, scheduler: Scheduler, record: JobRecord) -> None:
    """Raise RequestError unless the job says itself that it is of this user and of a run."""
    if uuid_in_comment(record.comment) is None or record.user_id != os.getuid():
        ways = [(scheduler.way_to_look(job_id), "shows it"), (scheduler.way_to_end(job_id), "ends it")]
        said = ", ".join(f"`{command}` {deed}" for command, deed in ways if command)
        raise RequestError(
            f"job {job_id} ({record.job_name or 'without a name'}) is not proven to be one of your runs: nothing was "
            f"done.{f' {said}.' if said else ''}"
        )


def _end_stray(job_id: str, scheduler: Scheduler, record: JobRecord) -> Cancellation:
    """Cancel a job of which there is no run, and that was proven to be ours."""
    if not record.is_live:
        return Cancellation("", True, record.state, job_id)
    complaint = scheduler.end([job_id], record.job_name)
    problem = (
        _failed(scheduler, complaint) if complaint else _goes_on(scheduler, job_id, uuid_in_comment(record.comment))
    )
    return Cancellation("", False, None, job_id, problem)


def _goes_on(scheduler: Scheduler, job_id: str, uuid: str | None) -> str | None:
    """Why a job may go on that the scheduler was told to end; None where it does not."""
    state, complaint = "", ""
    for pause in _LOOKS_S:
        record, complaint = scheduler.find_job(job_id)
        state = record.state if record is not None and uuid_in_comment(record.comment) == uuid else ""
        if not complaint and state not in _UNTOUCHED:
            return None
        time.sleep(pause)
    return _not_ended(scheduler.title, state, complaint)


def _failed(scheduler: Scheduler, complaint: str) -> str:
    command = scheduler.way_to_end("").strip() or f"cancelling by {scheduler.title}"
    return f"{command} failed: {complaint}"


def _not_ended(title: str, state: str, complaint: str) -> str:
    if complaint:
        return f"{title} was asked to end it, and whether it did cannot be told: {complaint}"
    return f"{title} was asked to end it, and lists it as {state} still"


def cancel_orphan(run_id: str, logs: Path) -> Cancellation | None:
    """Cancel the script on this machine whose run was of that name in `logs`, and is gone; None if there is none."""
    orphan = next((one for one in local_orphans(logs) if one.run_id == run_id), None)
    return None if orphan is None else _cancel_orphan(orphan)


def _cancel_orphan(orphan: LocalOrphan) -> Cancellation:
    return Cancellation(orphan.run_id, False, None, orphan.job_id, _still_here(orphan.end()))


def _refuse_to_choose(
    job_id: str, orphans: Sequence[LocalOrphan], found: Sequence[tuple[Scheduler, JobRecord]]
) -> None:
    """Refuse a number that names more than one thing of this user.

    Raises:
        RequestError: it does.
    """
    named = [f"run {one.run_id} on this machine ({_way_to_end(one)})" for one in orphans]
    for scheduler, record in found:
        if record.is_live and record.user_id == os.getuid() and uuid_in_comment(record.comment):
            named.append(f"job {record.job_name} of {scheduler.title} (`{scheduler.way_to_end(job_id)}`)")
    if len(named) > 1:
        raise RequestError(f"{job_id} is {' and '.join(named)}: nothing was done, end the one that you mean.")


def _way_to_end(orphan: LocalOrphan) -> str:
    """By its name, unless another run has that by now."""
    if is_run(orphan.folder):
        return f"`kill {orphan.script.pid}`"
    return for_runs_in(orphan.folder.parent, f"`hpc-llm cancel {orphan.run_id}`")


def _never_was_a_job(run: RunPaths) -> bool:
    identity = read_identity(run)
    if identity is None or not is_own(run):
        return False
    if not identity.has_job:  # a queue may have held it, and be gone
        return not run.cancelled.exists() and standings([run])[0].standing is Standing.NOTHING
    return identity.job_id is None and identity.process is None


def _give_up(run: RunPaths) -> str | None:
    """Mark a run that never was a job, so that nothing submits it later on; why not, where that is being done just now."""
    folder = claim_folder(run, array_of(read_json(run.job) or {}))
    with claimed(folder) as is_ours:
        if is_ours and _never_was_a_job(run):
            return None if _mark(run) else "its folder cannot be written"
        if is_ours or is_claimed(folder):
            return "another command is about to submit or to clear it: look again in a moment"
    return "its folder cannot be written"


def _still_there(wanted: Mapping[RunPaths, Identity]) -> dict[RunPaths, str]:
    """Runs whose jobs are listed as waiting or running although they were to be ended, or are not told of any more."""
    if not wanted:
        return {}
    for pause in _LOOKS_S:
        listed, complaints = queued(list(wanted.values()))
        states = {run: listed.get(one.key) for run, one in wanted.items()}
        alive = {run: job.state for run, job in states.items() if job is not None and job.state in _UNTOUCHED}
        unsure = {run for run, job in states.items() if job is None and complaints.get(wanted[run].scheduler)}
        if not alive and not unsure:
            return {}
        time.sleep(pause)
    for run in alive:
        with contextlib.suppress(OSError):
            run.cancelled.unlink(missing_ok=True)
    said = {run: complaints.get(one.scheduler, "") if run in unsure else "" for run, one in wanted.items()}
    titles = {run: one.facts.title for run, one in wanted.items()}
    return {run: _not_ended(titles[run], alive.get(run, ""), said[run]) for run in wanted if run in alive or said[run]}


def _cancellation(before: RunStatus, problem: str | None, over: str | None) -> Cancellation:
    outcome = before.outcome.value if before.outcome else over
    was_over = before.is_over or over is not None
    return Cancellation(before.run_id, was_over, outcome, before.job_id, problem, before.reason if was_over else None)


def _unproven(identity: Identity | None, answers: Answers, complaint: str, state: RunStatus) -> str:
    """Why nothing may be done: what is not proven to be the run's may be anybody's."""
    answer = answers.of(identity) if identity is not None else None
    if identity is not None and answer is not None and identity.key in answer.doubts:
        return answer.doubts[identity.key]
    if identity is None or answer is None or (identity.job_id is None and answer.can_tell(identity)):
        return f"it is {state.state} and has no job id yet: `hpc-llm reconcile {state.run_id}` finds out what it has"
    elsewhere, title = answer.belongs_to(identity), identity.facts.title
    if elsewhere is not None:
        return f"it is a job of {title}'s cluster {elsewhere}: cancel it there"
    if complaint or not answer.answered:
        return f"{title} does not answer: {complaint or answer.complaint}"
    if identity.uuid is None:
        job_id = identity.job_id or ""
        return (
            "it was submitted by a version that left no proof that the job is its own: look at it with "
            f"`{find(identity.scheduler).way_to_look(job_id)}`, then `{find(identity.scheduler).way_to_end(job_id)}`"
        )
    return f"{title} has no job {identity.job_id or ''} that is proven to be this run's".replace("  ", " ")


def _end(jobs: Mapping[RunPaths, Identity], scheduler: Scheduler, job_name: str | None) -> dict[RunPaths, str]:
    """End the jobs of one submission, then mark their runs; what could not be, by run."""
    ids = [one.job_id for one in jobs.values() if one.job_id is not None]
    complaint = scheduler.end(ids, job_name)
    if complaint:
        return dict.fromkeys(jobs, _failed(scheduler, complaint))
    for run in jobs:
        _mark(run)
    return {}


def _cancel_local(identities: dict[RunPaths, Identity]) -> dict[RunPaths, str]:
    """End what runs on this machine; what could not be, by run."""
    problems: dict[RunPaths, str] = {}
    marked: dict[RunPaths, bool] = {}
    here = living()
    for run, identity in identities.items():
        problem = _elsewhere(run, identity, here)
        if problem is not None:
            problems[run] = problem
        else:
            marked[run] = _mark(run)  # all of them first: a queue that is about to start one must see that
    for run, is_marked in marked.items():
        problem = _end_here(run, identities[run], is_marked)
        if problem is not None:
            problems[run] = problem
    return problems


def _elsewhere(run: RunPaths, identity: Identity, here: Living) -> str | None:
    """Why the processes of a run are not to be ended from here and by this folder."""
    running = here.of_run(identity.uuid, identity.name_of(run.run_id))
    made_in = (identity.run_dir, str(run.root.absolute()))
    stranger = next((one for one in running if str(one.folder) not in made_in), None)
    if stranger is not None:
        return f"its process {stranger.pid} was started for the run in {stranger.folder}: cancel that"
    marks = read_json(run.process) or {}
    named = [process_in(marks, "script"), process_in(marks, "queue"), identity.process]
    places = [place_of(one) for one in named if one is not None]
    if running or here.queue_of(identity.uuid) or not places or None in places:
        return None
    return f"it belongs to {places[0]}: cancel it there, or remove its folder if that is no more"


def _end_here(run: RunPaths, identity: Identity, is_marked: bool) -> str | None:
    """End the processes of a run; why that could not be."""
    name = identity.name_of(run.run_id)
    ours = living().of_run(identity.uuid, name)
    left = end_run(identity.uuid, name) if identity.uuid else []
    script = process_in(read_json(run.process) or {}, "script")
    if script is not None and is_alive(script) and not is_noted(identity):
        return f"process {script['pid']} has no marks of this run, and its records alone prove nothing: `kill {script['pid']}` ends it"
    was_running = script is not None and end_group(script)  # one whose marks cannot be read
    if not is_marked and not ours and not was_running:
        return "it waits in a local queue, which cannot be told: its folder cannot be written"
    return _still_here(left)


def _still_here(left: Sequence[Marked]) -> str | None:
    return f"its process {left[0].pid} does not end, not even by SIGKILL" if left else None


def _mark(run: RunPaths) -> bool:
    """Note in the folder that it was asked for; a full disk must not keep a job running."""
    with contextlib.suppress(OSError):
        run.write(run.cancelled, {"schema": 1, "requested_at": datetime.now(timezone.utc).isoformat()})
        return True
    return False
