"""Which job a run is: what is drawn before the scheduler is asked, and what its answer adds.

A job id alone proves nothing: Slurm's state may be wiped and its ids used again, and two clusters have the same ones. So
each submission draws a UUID that stays with its job: sbatch gets it beside the script, whole in the job's comment and short at
the end of its name, for accounting may keep no comment. A run is (cluster, UUID, task of the array).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hpc_llm.immutable import dataclass
from hpc_llm.records.run import RunPaths, array_folder
from hpc_llm.registry import is_plain_name
from hpc_llm.site.schedulers import SchedulerFacts, scheduler_of

MARK = "hpc-llm:"
"""Stands before the UUID in a job's comment."""
SHORT = 8
"""Digits of the UUID at the end of a job's name."""
LONGEST_NAME = 200
"""Characters of a job's name before them: what prints it cuts it somewhere behind."""
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_IN_COMMENT = re.compile(rf"{MARK}({_UUID})")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The job of one run, as far as it is known."""

    scheduler: str
    """Its name."""
    uuid: str | None = None
    """Of the submission; None for a run of version 0.1, which drew none."""
    cluster: str | None = None
    """The scheduler's own name of the cluster that was asked; not the name of a profile."""
    job_id: str | None = None
    """As the scheduler's commands take it, of Slurm `123` or `123_4`; None while nobody knows it."""
    array_task: int | None = None
    job_name: str | None = None
    """With the short UUID at its end."""
    submitted_at: float | None = None
    """Unix time at which the scheduler answered, or was about to be asked."""
    submitter: Mapping[str, Any] | None = None
    """The process that asks the scheduler (see `schedulers.process`)."""
    process: Mapping[str, Any] | None = None
    """The leader of the local queue that holds the run."""
    run_id: str | None = None
    """The run for which the job was submitted: a folder of another name was renamed since, or is a copy."""
    run_dir: str | None = None
    """Where the run's folder was made."""
    output: str | None = None
    """Path to which the script prints, as Slurm knows it."""
    is_recorded: bool = True
    """Whether the job id stands in job.json; False where sbatch's answer or the script told it, or nobody did."""

    @property
    def facts(self) -> SchedulerFacts:
        """What the scheduler is; one that is not known here has a name alone."""
        return scheduler_of(self.scheduler)

    @property
    def has_job(self) -> bool:
        """Whether the run is a job, of which the scheduler is asked, and not processes of a machine."""
        return not self.facts.is_this_machine

    @property
    def key(self) -> tuple[str | None, str | int | None]:
        """What tells runs apart among all jobs of all clusters."""
        return (self.uuid, self.array_task) if self.uuid else (None, self.job_id)

    def is_of(self, run_id: str) -> bool:
        """Whether the job was submitted for the run of that name, as far as the record says; a folder of another name was
        renamed, or is a copy."""
        return self.run_id in (None, run_id)

    def name_of(self, run_id: str) -> str:
        """The name under which the run that is called `run_id` now was made."""
        return self.run_id or run_id

    def with_job(self, job_id: str) -> Identity:
        """The same run, of which the job, or the array that holds it, is known now."""
        if self.array_task is None:
            return replace(self, job_id=job_id)
        return replace(self, job_id=f"{job_id.partition('_')[0]}_{self.array_task}")


def identity_of(record: Mapping[str, Any]) -> Identity | None:
    """The identity in a record of job.json, or of version 0.1's submission.json; None where it is damaged."""
    scheduler, job_id, uuid = (_text(record.get(name)) for name in ("scheduler", "job_id", "uuid"))
    if scheduler is None or not is_plain_name(scheduler) or (uuid is not None and not re.fullmatch(_UUID, uuid)):
        return None
    facts = scheduler_of(scheduler)
    if job_id is not None and not facts.is_job_id(job_id):
        return None
    if uuid is None and job_id is None and not facts.is_this_machine:
        return None
    task = record.get("array_task")
    return Identity(
        scheduler=scheduler,
        uuid=uuid,
        cluster=_text(record.get("cluster")),
        job_id=job_id,
        array_task=task if isinstance(task, int) and not isinstance(task, bool) and 0 <= task < 10**9 else None,
        job_name=_text(record.get("job_name")),
        submitted_at=_moment(record.get("submitted_at")) or _moment(record.get("intended_at")),
        submitter=_process(record.get("submitter")),
        process=_process(record.get("process")),
        run_id=_text(record.get("run_id")),
        run_dir=_text(record.get("run_dir")),
        output=output_of(record.get("run_dir"), record.get("array"), record.get("array_task")),
        is_recorded=facts.is_this_machine or job_id is not None,
    )


def output_of(run_dir: object, array: object, task: object) -> str | None:
    """Where the run that was made in `run_dir` prints; None where a record tells no folder."""
    if not isinstance(run_dir, str) or not run_dir:
        return None
    folder = Path(run_dir) if not isinstance(array, str) else array_folder(Path(run_dir).parent, array) / str(task)
    return str(RunPaths(folder).stdout)


def is_uuid(text: str) -> bool:
    """Whether it is one as a submission draws it, which may be part of a file's name."""
    return re.fullmatch(_UUID, text) is not None


def uuid_in_comment(comment: str | None) -> str | None:
    """The UUID that a job's comment holds, whatever a user wrote beside it.

    >>> uuid_in_comment("hpc-llm:8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b mine")
    '8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b'
    """
    found = _IN_COMMENT.search(comment or "")
    return found.group(1) if found else None


def is_job_of(uuid: str, job_name: str | None, comment: str | None) -> bool:
    """Whether a job with this name and comment is of the submission `uuid`: the comment decides where it holds one.

    >>> uuid = "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"
    >>> is_job_of(uuid, "tiny-z3-8d0d1a3e", None), is_job_of(uuid, "tiny-z3", None)
    (True, False)
    """
    named = uuid_in_comment(comment)
    if named is not None:
        return named == uuid
    return (job_name or "").endswith(f"-{uuid[:SHORT]}")


def marked_name(job_name: str, uuid: str) -> str:
    """The job's name with the short UUID behind it.

    >>> marked_name("tiny-z3", "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b")
    'tiny-z3-8d0d1a3e'
    """
    return f"{job_name[:LONGEST_NAME]}-{uuid[:SHORT]}"


def marked_comment(comment: str | None, uuid: str) -> str:
    """The job's comment: the whole UUID first, for a program that lists jobs may cut what follows."""
    return f"{MARK}{uuid}" + (f" {comment}" if comment else "")


def _text(value: object) -> str | None:
    """One line that a command can take as an argument."""
    return value if isinstance(value, str) and value.isprintable() and value else None


def _process(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) and isinstance(value.get("pid"), int) else None


def _moment(value: object) -> float | None:
    """Unix time of an ISO 8601 text."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
