"""Runs whose submission was cut short: is there a job, is it still being asked for, or is there nothing."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.records.files import OTHERS_MAY_WRITE, read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.local_process import process_in
from hpc_llm.runs.records import Records
from hpc_llm.schedulers.answer import Answer
from hpc_llm.schedulers.asking import Answers, ask
from hpc_llm.schedulers.claim import STALE_S, claim_folder, is_claimed
from hpc_llm.schedulers.clock import file_age
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.local.marks import Living, living
from hpc_llm.schedulers.process import can_be_seen, ended_with_a_restart, is_alive, session_is_alive
from hpc_llm.schedulers.runs import (
    answer_file,
    asking_file,
    in_words_of_copy,
    is_refusal,
    original_of,
    read_identity,
    submitit_folder,
    write_job,
)
from hpc_llm.schedulers.submission import array_of

PATIENCE_S = STALE_S
"""So long a submission that nobody here can see counts as under way: of another host, of a container."""
_LATE_S = 5.0
"""So long Slurm may take to show a job whose sbatch was killed just after it had been sent."""
_LISTED_S = 60.0
"""So long after its submission a job may be missing in a scheduler's lists, which sites keep for a while; as long as the judge waits."""


class Standing(str, Enum):
    """Where the submission of a run stands."""

    HAS_JOB = "has a job"
    ASKING = "is being submitted: look again in a moment"
    NOTHING = "never became a job"
    OPEN = "cannot be told"


@dataclass(frozen=True)
class Submitted:
    """What is known of a run's submission."""

    run: RunPaths
    identity: Identity | None
    standing: Standing
    why: str = ""


def standings(
    runs: Sequence[RunPaths],
    *,
    patient: bool = False,
    forgotten: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Submitted]:
    """Where the submission of each run stands; the scheduler is asked once for those that have no job id.

    With `patient` a run whose sbatch was killed in the middle is looked for again until Slurm can be expected to show it:
    for those who are about to act on its absence. With `forgotten` a run that had a job, of which the scheduler knows nothing any
    more and which left no trace, counts as one that never had any.
    """
    # The processes first: one that ends while Slurm is asked may have submitted the run in between.
    before = [(run, one, one is not None and is_being_asked(run, one)) for run in runs for one in [read_identity(run)]]
    answers = ask([one for _, one, _ in before if one is not None and (forgotten or one.job_id is None)])
    here = living() if any(one is not None and not one.has_job for _, one, _ in before) else Living()
    found = [_stand(run, one, is_asked, answers, forgotten, here) for run, one, is_asked in before]
    if patient and any(one.standing is Standing.NOTHING and _was_asked(one.run) for one in found):
        sleep(_LATE_S)
        return standings(runs, forgotten=forgotten)
    return found


def adopt(found: Iterable[tuple[RunPaths, Identity]], answers: Answers) -> list[RunPaths]:
    """Write down the job ids that only the answer to its submission, the script or the scheduler itself knows; returns the runs it was done for.

    It changes no job. A folder that cannot be written keeps its run readable all the same.
    """
    adopted = []
    for run, identity in found:
        job_id = None if identity.is_recorded else identity.job_id or answers.job_id_of(identity)
        if job_id is None or original_of(run, identity) is not None or not is_own(run):
            continue
        with contextlib.suppress(OSError, RequestError):
            write_job(run, job_id, recovered=True)
            adopted.append(run)
    return adopted


def is_own(run: RunPaths) -> bool:
    """Whether this user made the run: what somebody else left in a shared folder is theirs to put right."""
    try:
        return {path.lstat().st_uid for path in _telling(run) if path.exists()} == {os.getuid()}
    except OSError:
        return False


def why_not_own(run: RunPaths) -> str:
    """Why a run that is not this user's own, as `is_own` says, is to be left alone."""
    return "it belongs to another user" if os.path.lexists(run.root) else "its folder is gone"


def written_by_others(run: RunPaths) -> list[Path]:
    """Of the folders and files by which this user's processes act on a run, those that somebody else may have changed."""
    return [path for path in _telling(run) if path.exists() and not _is_sealed(path)]


def _telling(run: RunPaths) -> tuple[Path, ...]:
    return run.root, run.job, run.script, run.submitit, run.process


def _is_sealed(path: Path) -> bool:
    found = path.lstat()
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & OTHERS_MAY_WRITE


def _stand(
    run: RunPaths, identity: Identity | None, is_asked: bool, answers: Answers, forgotten: bool, here: Living
) -> Submitted:
    if identity is None:
        return _without_record(run)
    if not is_own(run):
        return Submitted(run, identity, Standing.OPEN, why_not_own(run))
    original = original_of(run, identity, (read_json(run.experiment) or {}).get("run_id"))
    if original is not None:
        return Submitted(run, identity, Standing.OPEN, in_words_of_copy(run, original))
    if identity.has_job:
        found = _as_job(run, identity, is_asked, answers.of(identity), forgotten)
    else:
        found = _local(run, identity, is_asked, here)
    if found.standing is Standing.NOTHING and not identity.is_of(run.run_id):  # who renamed it wanted to keep it
        return Submitted(run, identity, Standing.OPEN, f"it was run {identity.run_id}, which never became a job")
    return found


def _as_job(run: RunPaths, identity: Identity, is_asked: bool, answer: Answer, forgotten: bool) -> Submitted:
    if identity.job_id is not None:
        lost = forgotten and identity.uuid is not None and not is_asked and not _left_a_trace(run)
        lost = lost and not _is_recent(run.job, _LISTED_S)
        gone = lost and answer.can_tell(identity) and answer.record_of(identity) is None
        return Submitted(run, identity, Standing.NOTHING if gone else Standing.HAS_JOB)
    job_id = answer.job_ids.get(identity.key)
    if job_id is not None:
        return Submitted(run, identity.with_job(job_id), Standing.HAS_JOB)
    if is_asked:
        return Submitted(run, identity, Standing.ASKING)
    elsewhere = answer.belongs_to(identity)
    if elsewhere is not None:
        return Submitted(
            run, identity, Standing.OPEN, f"it is of {identity.facts.title}'s cluster {elsewhere}: look from there"
        )
    doubt = answer.doubts.get(identity.key)
    if doubt is not None:
        return Submitted(run, identity, Standing.OPEN, doubt)
    if not asking_file(_folder(run)).exists() and identity.submitter is not None and can_be_seen(identity.submitter):
        return Submitted(run, identity, Standing.NOTHING)  # its process died before it had asked
    if not answer.can_tell(identity):
        return Submitted(run, identity, Standing.OPEN, f"{identity.facts.title} does not answer: {answer.complaint}")
    return Submitted(run, identity, Standing.NOTHING)


def _left_a_trace(run: RunPaths) -> bool:
    return any(path.exists() for path in (run.exit, run.result, run.stdout, run.steps, run.started, run.failures))


def _without_record(run: RunPaths) -> Submitted:
    """A folder of version 0.1 that was never submitted, or a copy; what it has beside its plan tells which."""
    if _left_a_trace(run) or run.submission.exists() or run.job.exists():
        return Submitted(run, None, Standing.OPEN, "it holds no record of its job")
    if not is_own(run):
        return Submitted(run, None, Standing.OPEN, why_not_own(run))
    if not _is_recent(run.experiment):
        return Submitted(run, None, Standing.NOTHING)
    return Submitted(run, None, Standing.OPEN, "it may be in the making")


def _local(run: RunPaths, identity: Identity, is_asked: bool, here: Living) -> Submitted:
    """Processes that carry the run's marks first, then what its files tell: those may lack anything after a full disk."""
    if here.queue_of(identity.uuid) is not None or here.of_run(identity.uuid, identity.name_of(run.run_id)):
        return Submitted(run, identity, Standing.HAS_JOB)
    marks = read_json(run.process) or {}
    if process_in(marks, "script") is not None or _has_run_here(run):
        return Submitted(run, identity, Standing.HAS_JOB)
    queues = [one for one in (process_in(marks, "queue"), identity.process) if one is not None]
    if not queues:
        return Submitted(run, identity, Standing.ASKING if is_asked else Standing.NOTHING)
    if run.cancelled.exists() or not all(_is_gone(one, marks.get("machine")) for one in queues):
        return Submitted(run, identity, Standing.HAS_JOB)
    return Submitted(run, identity, Standing.NOTHING, "the queue that held it is gone")


def _is_gone(process: Mapping[str, Any], machine: object) -> bool:
    """Whether it lives no more for certain."""
    return ended_with_a_restart(process, machine) or (can_be_seen(process) and not _lives(process))


def _has_run_here(run: RunPaths) -> bool:
    """Whether its script came to do anything: the queue itself makes the empty files of its output."""
    traces = (run.exit, run.result, run.steps, run.started, run.failures)
    with contextlib.suppress(OSError):
        if run.stdout.stat().st_size or run.stderr.stat().st_size:
            return True
    return any(path.exists() for path in traces)


def has_begun(records: Records) -> bool:
    """Whether a scheduler has it for certain, so that nobody needs to look for who is submitting it."""
    identity = records.identity
    told = identity is not None and (identity.job_id is not None or identity.process is not None)
    return told or records.queue is not None or records.exit is not None or bool(records.starts)


def is_being_asked(run: RunPaths, identity: Identity) -> bool:
    """Whether the command that submits it, or sbatch in its own session, is at it still."""
    if is_claimed(claim_folder(run, array_of(read_json(run.job) or {}))):
        return True
    asking = read_json(asking_file(_folder(run)))
    # Once sbatch is asked only its own process counts: who wanted it may live on, as a notebook does.
    process = asking if asking is not None else identity.submitter
    processes = [process] if process is not None and isinstance(process.get("pid"), int) else []
    lives = is_alive if asking is None else session_is_alive  # sbatch may outlive the process that waits for its answer
    if any(can_be_seen(process) and _lives(process, lives) for process in processes):
        return True
    if all(can_be_seen(process) for process in processes):
        return False
    return _is_recent(run.job) or _is_recent(asking_file(_folder(run)))


def _was_asked(run: RunPaths) -> bool:
    """Whether sbatch was started, and left no answer that says that Slurm has nothing."""
    folder = _folder(run)
    return asking_file(folder).exists() and not is_refusal(read_json(answer_file(folder)))


def _folder(run: RunPaths) -> Path:
    return submitit_folder(run, array_of(read_json(run.job) or {}))


def _lives(process: Mapping[str, Any], lives: Callable[[Mapping[str, Any]], bool] = is_alive) -> bool:
    try:
        return lives(process)
    except (TypeError, ValueError, KeyError):
        return False


def _is_recent(path: Path, within_s: float = PATIENCE_S) -> bool:
    """Whether it was written within the patience; a stamp that is far ahead makes nothing recent."""
    seconds = file_age(path)
    return seconds is not None and abs(seconds) < within_s
