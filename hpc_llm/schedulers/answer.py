"""What a scheduler answers about runs. An answer counts only where it is about our job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.job_record import JobRecord


@dataclass(frozen=True)
class Answer:
    """What the scheduler said about the runs asked for."""

    records: Mapping[object, JobRecord] = field(default_factory=dict)
    """By `Identity.key`: only what is proven to be of that run."""
    job_ids: Mapping[object, str] = field(default_factory=dict)
    """By `Identity.key`: of runs whose job id was not known."""
    answered: bool = True
    """Whether the queue, or accounting and the queue, answered: then a run without a record is unknown to Slurm."""
    complaint: str = ""
    """Why not, in the commands' own words."""
    cluster: str | None = None
    """Slurm's name of the cluster that was asked."""
    doubts: Mapping[object, str] = field(default_factory=dict)
    """By `Identity.key`: of runs of which a job goes on that may be theirs and is not proven to be, which one, and what to do."""

    @property
    def is_silent(self) -> bool:
        """Whether there is a Slurm here that gave no answer, rather than none at all."""
        return not self.answered and "not on PATH" not in self.complaint

    def record_of(self, identity: Identity) -> JobRecord | None:
        """What Slurm knows of this run's job; None where nothing is proven to be of it."""
        return self.records.get(identity.key)

    def belongs_to(self, identity: Identity) -> str | None:
        """The other cluster that the run is a job of; None where it is this one, or nobody knows."""
        return identity.cluster if identity.cluster and self.cluster and identity.cluster != self.cluster else None

    def can_tell(self, identity: Identity) -> bool:
        """Whether a missing record means that Slurm does not know the job."""
        known = self.cluster is not None or identity.cluster is None
        return self.answered and known and self.belongs_to(identity) is None and identity.key not in self.doubts


@dataclass(frozen=True)
class Printing:
    """A job of ours that waits or runs, by the folder into which it prints."""

    job_id: str
    uuid: str
    folder: Path
    """Where its run was made; what stands there now may be another one."""
