"""Which job a run is: what is drawn before the scheduler is asked, and what its answer adds.

A job id alone proves nothing: Slurm's state may be wiped and its ids used again, and two clusters have the same ones. So
each submission draws a UUID and hands it to sbatch beside the script, whole in the job's comment and short at the end of
its name, for accounting may keep no comment. A run is (Slurm's cluster, UUID, task of the array).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MARK = "hpc-llm:"
"""Stands before the UUID in a job's comment."""
SHORT = 8
"""Digits of the UUID at the end of a job's name."""
_IN_COMMENT = re.compile(rf"{MARK}([0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}})")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The job of one run, as far as it is known."""

    scheduler: str
    """`slurm` or `local`."""
    uuid: str | None = None
    """Of the submission; None for a run of version 0.1, which drew none."""
    cluster: str | None = None
    """Slurm's own name of the cluster that was asked; not the name of a profile."""
    job_id: str | None = None
    """As Slurm's commands take it, `123` or `123_4`; None while nobody knows it."""
    array_task: int | None = None
    job_name: str | None = None
    """With the short UUID at its end."""
    submitted_at: float | None = None
    """Unix time at which the scheduler answered, or was about to be asked."""
    submitter: Mapping[str, Any] | None = None
    """The process that asks the scheduler (see `submit.process`)."""
    process: Mapping[str, Any] | None = None
    """The leader of the local queue that holds the run."""

    @property
    def key(self) -> tuple[str | None, str | None, str | None]:
        """What tells runs apart among all jobs of all clusters."""
        return self.cluster, self.uuid, self.job_id


def uuid_in_comment(comment: str | None) -> str | None:
    """The UUID that a job's comment holds, whatever a user wrote beside it.

    >>> uuid_in_comment("mine hpc-llm:8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b")
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
