"""Whether what a scheduler said of a job's end is proven, and whether it is so for good.

One wrong answer must not stay: what a scheduler says once may be a wrapper's, or of a moment in which it was at fault. So an end
counts where its times make sense, or the script's own record of it is there; it is asked for again until it was said so long
after the end that no try can follow.
"""

from __future__ import annotations

from hpc_llm.runs.records import KeptRecord, Records
from hpc_llm.schedulers.job_record import MUST_HAVE_BEGUN, JobRecord

_DAY_S = 86400.0
_HOUR_S = 3600.0
"""So far may local times be from each other where the clocks are set back."""


def is_proven(kept: KeptRecord, records: Records) -> bool:
    """Whether what was kept counts while the scheduler is silent."""
    job, asked_at = kept.record, kept.asked_at
    if asked_at is not None and job.ended_at is not None and job.ended_at > asked_at + _HOUR_S:
        return False  # that is when its time would have been up
    return (_can_be(job) and (job.started_at is not None or job.ended_at is not None)) or records.exit is not None


def is_for_good(kept: KeptRecord, records: Records) -> bool:
    """Whether it was said so long after the end that no try can follow, and none has begun since."""
    ended_at = kept.record.ended_at if kept.record.ended_at is not None else kept.since
    begun = [start.time for start in records.starts if start.time] + [(records.exit and records.exit.started_at) or 0.0]
    if kept.record.ended_at is not None and max(begun) > kept.record.ended_at:
        return False
    if kept.asked_at is None:  # of version 0.1
        return is_proven(kept, records)
    return _can_be(kept.record) and ended_at is not None and kept.asked_at - ended_at > _DAY_S


def _can_be(job: JobRecord) -> bool:
    """Whether a job can have ended so: what was never started did not complete, and no end is before its start."""
    if job.state in MUST_HAVE_BEGUN and job.started_at is None:
        return False
    return job.started_at is None or job.ended_at is None or job.ended_at > job.started_at - _HOUR_S
