"""What is asked of the scheduler for a run: which job it is, and what is known of that job."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpc_llm.run import RunPaths
from hpc_llm.runs import scheduler
from hpc_llm.runs.fields import moment_of
from hpc_llm.runs.slurm_records import JobRecord
from hpc_llm.submit.identity import Identity
from hpc_llm.submit.runs import read_submission

_JOB_ID = re.compile(r"\d+(?:_\d+)?")


@dataclass(frozen=True)
class Answer:
    """What the scheduler said about the runs asked for."""

    records: Mapping[object, JobRecord] = field(default_factory=dict)
    answered: bool = True
    complaint: str = ""
    """Why not, in the commands' own words."""

    def record_of(self, identity: Identity) -> JobRecord | None:
        return self.records.get(identity.key)

    def can_tell(self, identity: Identity) -> bool:
        """Whether a missing record means that Slurm does not know the job."""
        return self.answered

    def belongs_to(self, identity: Identity) -> str | None:
        """The other cluster that the run is a job of; None where it is this one, or nobody knows."""
        return None


def ask(identities: Collection[Identity]) -> Answer:
    """What Slurm knows of these runs."""
    by_id = {one.job_id: one for one in identities if one.job_id is not None}
    answer = scheduler.ask(list(by_id))
    records: dict[object, JobRecord] = {
        by_id[job_id].key: record for job_id, record in answer.records.items() if job_id in by_id
    }
    return Answer(records, answer.answered, answer.complaint)


def read_identity(run: RunPaths) -> Identity | None:
    """Which job the run is; None where nothing tells, as in a copy without its records."""
    record = read_submission(run)
    return None if record is None else identity_of(record)


def identity_of(record: Mapping[str, Any]) -> Identity | None:
    """The identity in a record of the submission; None where it is damaged."""
    job_id, task, process, submitted_at = (
        record.get(name) for name in ("job_id", "array_task", "process", "submitted_at")
    )
    scheduler_name = record.get("scheduler")
    if scheduler_name != "local" and not (isinstance(job_id, str) and _JOB_ID.fullmatch(job_id)):
        return None
    moment = moment_of(submitted_at) if isinstance(submitted_at, str) else math.nan
    return Identity(
        scheduler="local" if scheduler_name == "local" else "slurm",
        job_id=job_id if isinstance(job_id, str) else None,
        array_task=task if isinstance(task, int) else None,
        submitted_at=None if math.isnan(moment) else moment,
        process=process if isinstance(process, dict) else None,
    )
