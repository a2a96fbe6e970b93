"""Runs whose submission was cut short: is there a job, is it still being asked for, or is there nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.run import RunPaths, read_json
from hpc_llm.runs.records import Records
from hpc_llm.runs.scheduler import Answer, ask
from hpc_llm.submit.identity import Identity
from hpc_llm.submit.process import is_alive, is_on_this_host
from hpc_llm.submit.runs import answer_file, asking_file, read_identity, submitit_folder, write_job

PATIENCE_S = 600.0
"""So long a submission from another host counts as under way: nobody here can see whether its process lives."""
_LATE_S = 5.0
"""So long Slurm may take to show a job whose sbatch was killed just after it had been sent."""


class Standing(str, Enum):
    """Where the submission of a run stands."""

    HAS_JOB = "has a job"
    ASKING = "is being submitted"
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
    runs: Sequence[RunPaths], *, patient: bool = False, sleep: Callable[[float], None] = time.sleep
) -> list[Submitted]:
    """Where the submission of each run stands; Slurm is asked once for those that have no job id.

    With `patient` a run whose sbatch was killed in the middle is looked for again until Slurm can be expected to show it:
    for those who are about to act on its absence.
    """
    identities = [read_identity(run) for run in runs]
    answer = ask([one for one in identities if one is not None and one.job_id is None])
    found = [_stand(run, one, answer) for run, one in zip(runs, identities, strict=True)]
    if patient and any(one.standing is Standing.NOTHING and _was_asked(one.run) for one in found):
        sleep(_LATE_S)
        return standings(runs, patient=False)
    return found


def adopt(found: Iterable[tuple[RunPaths, Identity]], answer: Answer) -> list[RunPaths]:
    """Write down the job ids that only sbatch's answer, the script or Slurm itself knows; returns the runs it was done for.

    It changes no job. A folder that cannot be written keeps its run readable all the same.
    """
    adopted = []
    for run, identity in found:
        job_id = None if identity.is_recorded else identity.job_id or answer.job_ids.get(identity.key)
        if job_id is None or not identity.is_of(run.run_id):
            continue
        with contextlib.suppress(OSError, RequestError):
            write_job(run, job_id, recovered=True)
            adopted.append(run)
    return adopted


def _stand(run: RunPaths, identity: Identity | None, answer: Answer) -> Submitted:
    if identity is None:
        return _without_record(run)
    if not identity.is_of(run.run_id):
        return Submitted(run, identity, Standing.OPEN, f"its folder is a copy of run {identity.run_id}")
    if identity.scheduler == "local":
        return _local(run, identity)
    if identity.job_id is not None:
        return Submitted(run, identity, Standing.HAS_JOB)
    job_id = answer.job_ids.get(identity.key)
    if job_id is not None:
        return Submitted(run, identity.with_job(job_id), Standing.HAS_JOB)
    if is_being_asked(run, identity):
        return Submitted(run, identity, Standing.ASKING)
    elsewhere = answer.belongs_to(identity)
    if elsewhere is not None:
        return Submitted(run, identity, Standing.OPEN, f"it is of Slurm's cluster {elsewhere}: look from there")
    if not _was_asked(run) and identity.submitter is not None and is_on_this_host(identity.submitter):
        return Submitted(run, identity, Standing.NOTHING)  # its process died before it had asked
    if not answer.can_tell(identity):
        return Submitted(run, identity, Standing.OPEN, f"Slurm does not answer: {answer.complaint}")
    return Submitted(run, identity, Standing.NOTHING)


def _without_record(run: RunPaths) -> Submitted:
    """A folder of version 0.1 that was never submitted, or a copy; what it has beside its plan tells which."""
    if any(path.exists() for path in (run.exit, run.result, run.stdout, run.steps, run.submission, run.job)):
        return Submitted(run, None, Standing.OPEN, "it holds no record of its job")
    if not _is_recent(_modified(run)):
        return Submitted(run, None, Standing.NOTHING)
    return Submitted(run, None, Standing.OPEN, "it may be in the making")


def _local(run: RunPaths, identity: Identity) -> Submitted:
    marks = read_json(run.process) or {}
    if identity.process is not None or marks or run.exit.exists():
        queue = marks.get("queue") or identity.process
        waits = "script" not in marks and not run.exit.exists() and not run.cancelled.exists()
        if waits and isinstance(queue, dict) and is_on_this_host(queue) and not is_alive(queue):
            return Submitted(run, identity, Standing.NOTHING, "the queue that held it is gone")
        return Submitted(run, identity, Standing.HAS_JOB)
    if is_being_asked(run, identity):
        return Submitted(run, identity, Standing.ASKING)
    return Submitted(run, identity, Standing.NOTHING)


def has_begun(records: Records) -> bool:
    """Whether a scheduler has it for certain, so that nobody needs to look for who is submitting it."""
    identity = records.identity
    told = identity is not None and (identity.job_id is not None or identity.process is not None)
    return told or records.queue is not None or records.exit is not None or bool(records.starts)


def is_being_asked(run: RunPaths, identity: Identity) -> bool:
    """Whether the command that submits it, or sbatch in its own session, is at it still."""
    asking = read_json(asking_file(_folder(run)))
    processes = [process for process in (identity.submitter, asking) if process and "pid" in process]
    if any(is_on_this_host(process) and _lives(process) for process in processes):
        return True
    elsewhere = any(not is_on_this_host(process) for process in processes)
    return elsewhere and _is_recent(identity.submitted_at)


def _was_asked(run: RunPaths) -> bool:
    """Whether sbatch was started, and left no answer that says that Slurm has nothing."""
    folder = _folder(run)
    return asking_file(folder).exists() and read_json(answer_file(folder)) is None


def _folder(run: RunPaths) -> Any:
    array = (read_json(run.job) or {}).get("array")
    return submitit_folder(run, array if isinstance(array, str) else None)


def _lives(process: Any) -> bool:
    try:
        return is_alive(process)
    except (TypeError, ValueError, KeyError):
        return False


def _is_recent(moment: float | None) -> bool:
    """Whether it was less than the patience ago; a clock that is far ahead makes nothing recent."""
    return moment is not None and abs(time.time() - moment) < PATIENCE_S


def _modified(run: RunPaths) -> float | None:
    try:
        return run.experiment.stat().st_mtime
    except OSError:
        return None
