"""What the judge is given, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpc_llm.causes.cause import Cause
from hpc_llm.causes.found import Found
from hpc_llm.causes.log import LogFindings
from hpc_llm.causes.verdict import Verdict
from hpc_llm.records.run import Outcome
from hpc_llm.runs.local_process import LocalState
from hpc_llm.runs.records import Records
from hpc_llm.schedulers.job_record import JobRecord


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known of one run at one moment."""

    records: Records
    now: float
    """Unix time."""
    job: JobRecord | None = None
    """What the scheduler says, or last said, of its job: proven to be of this run."""
    can_tell: bool = False
    """The scheduler answered: without `job` it does not know the job."""
    complaint: str = ""
    """Why it did not."""
    is_silent: bool = False
    """There is a scheduler, which gave no answer."""
    doubt: str | None = None
    """Which job may be the run's and is not proven to be."""
    elsewhere: str | None = None
    """The other cluster of its scheduler that the run is a job of."""
    is_being_submitted: bool = False
    """The command that submits it, or the one that it asks by, is at it still."""
    local: LocalState | None = None
    """What its processes do, where this machine runs it."""
    ran_here: bool = False
    """Its script ran on this very host: no file of it is late."""
    logs: Sequence[LogFindings] | None = None
    """What its output says; None while it was not read."""
    begun: int = 0
    """How many tries its output shows to have begun, where no record tells."""

    @property
    def title(self) -> str:
        """The scheduler, as sentences have it."""
        identity = self.records.identity
        return identity.facts.title if identity is not None else "the scheduler"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What became of a run."""

    state: str
    """The scheduler's word: PENDING, RUNNING, COMPLETED, TIMEOUT; or SUBMITTING, ENDING, UNKNOWN."""
    outcome: Outcome | None
    """None while it is not over."""
    reason: str | None
    """One sentence; None where the outcome says all."""
    verdict: Verdict
    """The root and what follows from it, for whoever explains it."""
    found: tuple[Found, ...] = ()
    """All that was weighed."""
    remedy: str | None = None
    """Instead of the cause's own: of a run that waits."""

    @property
    def cause(self) -> Cause:
        return self.verdict.cause

    @property
    def confidence(self) -> float:
        return self.verdict.confidence

    @property
    def retry(self) -> bool:
        """Whether the same job may be submitted again as it is."""
        root = self.verdict.root
        own = root.sign.retry if root is not None and root.is_root else None
        return self.cause.retry if own is None else own

    @property
    def is_over(self) -> bool:
        return self.outcome is not None
