"""One request to a scheduler, written down before it is made: whoever finds it later can tell what became of it."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpc_llm.records.run import file_name_part
from hpc_llm.registry import is_plain_name
from hpc_llm.schedulers.identity import marked_name
from hpc_llm.schedulers.process import describe_process
from hpc_llm.schedulers.scheduler import find
from hpc_llm.site.schedulers import SchedulerFacts, scheduler_of

SCHEMA = 2
"""Of job.json; 1 is version 0.1's submission.json."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job, a job array, or a queue of runs on this machine."""

    scheduler: str
    """Its name."""
    job_name: str = "hpc-llm"
    """As the script has it; the job's own has the short UUID behind it."""
    comment: str | None = None
    """The user's own, which shares the job's comment with the UUID."""
    nodes: int = 1
    tasks_per_node: int = 1
    time_s: int | None = None
    array: str | None = None
    """Name of the array, in whose folder links lead to the runs; None where there is one run, or no array."""
    cluster: str | None = None
    """The scheduler's own name of the cluster that is to be asked."""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    sweep: str | None = None
    """Shared by all submissions of one request."""
    parallel: int | None = None
    """Most of its runs at a time; None where nobody says."""
    digests: tuple[str, ...] = ()
    """SHA-256 of the script of each run, from the memory of who submits: others may be able to put another folder in a run's
    place. No record has them. Empty where one script is for all."""

    @property
    def arguments(self) -> list[str]:
        """What the scheduler's command gets beside the script."""
        return find(self.scheduler).arguments(self.job_name, self.comment, self.uuid)

    @property
    def facts(self) -> SchedulerFacts:
        return scheduler_of(self.scheduler)

    def intent(self, run_dir: Path, task: int) -> dict[str, Any]:
        """The content of job.json of the run that will live there, while nobody has answered."""
        own = {name: getattr(self, name) for name in _recorded()}
        return {
            "schema": SCHEMA,
            "run_id": run_dir.name,
            "run_dir": str(run_dir),
            **own,
            "is_this_machine": self.facts.is_this_machine,
            "job_name": marked_name(self.job_name, self.uuid),
            "script_job_name": self.job_name,
            "array_task": task if self.array is not None else None,
            "arguments": self.arguments,
            "submitter": describe_process(os.getpid()),
            "intended_at": now(),
            "job_id": None,
            "submitted_at": None,
        }


def submission_of(record: Mapping[str, Any]) -> Submission | None:
    """The submission that a job.json tells of; None where it is damaged, or of a version that kept less."""
    values: dict[str, Any] = {name: record.get(name) for name in _recorded()} | {
        "job_name": record.get("script_job_name")
    }
    integers, texts = (values["nodes"], values["tasks_per_node"]), (values["job_name"], values["uuid"])
    if not is_plain_name(values["scheduler"]) or not all(isinstance(text, str) for text in texts):
        return None
    if not all(isinstance(number, int) and number > 0 for number in integers):
        return None
    optional = {"comment": str, "array": str, "cluster": str, "sweep": str, "time_s": int, "parallel": int}
    if not all(values[name] is None or isinstance(values[name], kind) for name, kind in optional.items()):
        return None
    return Submission(**values) if values["array"] is None or array_of(record) is not None else None


def _recorded() -> list[str]:
    """The fields that job.json has."""
    return [one.name for one in fields(Submission) if one.name != "digests"]


def digest_of(script: bytes) -> str:
    """SHA-256 of a script, as `Submission.digests` has it."""
    return hashlib.sha256(script).hexdigest()


def array_of(record: Mapping[str, Any]) -> str | None:
    """Name of the folder of links that a job.json tells of; None where it is no plain name: it becomes part of a path."""
    array = record.get("array")
    return array if isinstance(array, str) and array and file_name_part(array, limit=255) == array else None


def now() -> str:
    """ISO 8601, UTC, with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
