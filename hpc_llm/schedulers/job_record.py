"""What a scheduler knows of one job, in the words of Slurm: whoever answers in them is understood by the judge."""

from __future__ import annotations

from dataclasses import dataclass

LIVE_STATES = frozenset(
    (
        "CONFIGURING", "COMPLETING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
        "EXPEDITING", "POWER_UP_NODE", "RUNNING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED",
        "UPDATE_DB",
    )
)  # fmt: skip
"""A job in one of these can still change; every other state is an end."""
FINAL_STATES = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
"""The ends that Slurm has a word for."""
MUST_HAVE_BEGUN = frozenset(("COMPLETED", "OUT_OF_MEMORY", "TIMEOUT"))
"""Ends of jobs that were at work; the others may come while a job waits."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """What the scheduler knows of one job or of one task of an array."""

    state: str
    """One word: RUNNING, CANCELLED, OUT_OF_MEMORY."""
    cluster: str | None = None
    """Slurm's name of the cluster, where the answer holds it."""
    user_id: int | None = None
    """Of its owner, where the answer holds it."""
    job_name: str | None = None
    comment: str | None = None
    submitted_at: float | None = None
    """Unix time; of a requeued job that of its last try."""
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    started_at: float | None = None
    """Unix time."""
    ended_at: float | None = None
    elapsed_s: float | None = None
    nodes: str | None = None
    out_of_memory: bool = False
    """The job or a step of it was killed because the host's memory ran out."""

    @property
    def may_be_outdated(self) -> bool:
        """Whether the queue may know better than accounting: of a start, or of another try after a lost node."""
        return self.state in ("PENDING", "REQUEUED", "BOOT_FAIL", "NODE_FAIL", "PREEMPTED")

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES

    @property
    def never_started(self) -> bool:
        """Whether it ended while it waited; the queue gives such a job a start all the same."""
        return not self.is_live and (self.started_at is None or (self.nodes is None and self.elapsed_s == 0))

    @property
    def is_revoked(self) -> bool:
        """Whether another cluster of a federation has it: what this one says of it is no end."""
        return self.state == "REVOKED"
