"""Which of the jobs that Slurm lists is a run's. An id proves nothing, nor does what the run's own records say of a job.

The queue shows the comments of all jobs, to everybody, so one that waits or runs is a run's by the whole UUID in its comment, unless this
user has noted that UUID for another run. Where a site has rewritten that, it takes this user's own note of the submission (`ledger`) and that the job prints where the run was made.
Accounting may keep no comments: there the short UUID in the name is enough, of a submission that is noted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpc_llm.schedulers.identity import Identity, is_job_of, uuid_in_comment
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.ledger import is_noted, is_noted_elsewhere
from hpc_llm.schedulers.slurm.records import latest

_SAME_TIME_S = 30.0
"""So far may Slurm's time of a submission be from that of the command, where nothing else proves anything."""
Jobs = Mapping[str, Sequence[JobRecord]]
"""What is listed, by job id."""


def proven(identities: Iterable[Identity], jobs: Jobs, *, in_queue: bool) -> dict[object, JobRecord]:
    """Of all that has the job id of a run, what is of that run: an id may have been given to somebody else."""
    found: dict[object, JobRecord] = {}
    for one in identities:
        of_id = jobs.get(one.job_id or "", ())
        if one.uuid is None:
            own = _by_time(one, of_id)
        else:
            own = latest(record for record in of_id if _is_of(one, record, in_queue))
            own = own or _by_time(one, [record for record in of_id if _may_be_shown(one, record)])
        if own is not None:
            found[one.key] = own
    return found


def proven_by_uuid(
    identities: Sequence[Identity], jobs: Jobs, *, in_queue: bool
) -> tuple[dict[object, JobRecord], dict[object, str]]:
    """Of runs whose job id nobody knows the jobs that are theirs, and their ids."""
    records: dict[object, JobRecord] = {}
    job_ids: dict[object, str] = {}
    for job_id, found in jobs.items():
        for one in identities:
            own = latest(record for record in found if _is_of(one, record, in_queue)) if _is_task(one, job_id) else None
            if own is not None:
                records[one.key], job_ids[one.key] = own, job_id
    return records, job_ids


def without_a_uuid(jobs: Jobs) -> Jobs:
    """Those of the user's own jobs that say nothing against being a run's."""
    own = {
        job_id: [one for one in found if one.user_id == os.getuid() and uuid_in_comment(one.comment) is None]
        for job_id, found in jobs.items()
    }
    return {job_id: found for job_id, found in own.items() if found}


def proven_by_note(
    identities: Iterable[Identity], jobs: Jobs, outputs: Mapping[str, str]
) -> tuple[dict[object, JobRecord], dict[object, str], dict[object, str]]:
    """Jobs whose name and comment a site has rewritten, by where they print, and their ids; and what may be a run's and is not proven to be.

    `jobs` are without a UUID, `outputs` the files to which they print.
    """
    records: dict[object, JobRecord] = {}
    job_ids: dict[object, str] = {}
    doubts: dict[object, str] = {}
    for one in identities:
        candidates = dict(_candidates(one, jobs, outputs))
        printing = [job_id for job_id in candidates if outputs.get(job_id) == one.output]
        if len(printing) == 1 and is_noted(one):
            records[one.key], job_ids[one.key] = candidates[printing[0]], printing[0]
        elif going := [(job_id, record) for job_id, record in candidates.items() if record.is_live]:
            doubts[one.key] = _doubt(*going[0])
    return records, job_ids, doubts


def _candidates(identity: Identity, jobs: Jobs, outputs: Mapping[str, str]) -> Iterator[tuple[str, JobRecord]]:
    """The jobs that have the run's name or print into its folder, as its own records say."""
    for job_id in [identity.job_id] if identity.job_id is not None else jobs:
        record = latest(jobs.get(job_id, ()))
        if record is None or not _is_task(identity, job_id):
            continue
        prints_there = identity.output is not None and outputs.get(job_id) == identity.output
        if prints_there or is_job_of(identity.uuid or "", record.job_name, None):
            yield job_id, record


def _doubt(job_id: str, record: JobRecord) -> str:
    return (
        f"nothing proves that job {job_id} ({record.job_name or 'without a name'}) is this run's, so it is left alone: its comment "
        f"holds no UUID. `scontrol show job {job_id}` shows it, `scancel {job_id}` ends it"
    )


def _is_task(identity: Identity, job_id: str) -> bool:
    return job_id.partition("_")[2] == ("" if identity.array_task is None else str(identity.array_task))


def _is_of(identity: Identity, record: JobRecord, in_queue: bool) -> bool:
    if identity.uuid is None or (identity.cluster and record.cluster and identity.cluster != record.cluster):
        return False
    if uuid_in_comment(record.comment) is not None:
        return uuid_in_comment(record.comment) == identity.uuid and not is_noted_elsewhere(identity)
    is_named = not (in_queue and record.is_live) and is_job_of(identity.uuid, record.job_name, record.comment)
    return is_named and is_noted(identity)


def _may_be_shown(identity: Identity, record: JobRecord) -> bool:
    """Whether an end may be told of a run by its time: of a job that ended before accounting had learned of it there is neither
    name nor comment, and a submission of before, or from another home, is not noted."""
    if record.is_live or record.comment is not None:
        return False
    return record.job_name in (None, "allocation") or is_job_of(identity.uuid or "", record.job_name, None)


def _by_time(identity: Identity, records: Sequence[JobRecord]) -> JobRecord | None:
    """The job of a run's id that was submitted when the run was, and its later tries; good enough to be shown, not to act on."""
    began = False
    own = None
    for record in records:
        if record.submitted_at is None or identity.submitted_at is None or uuid_in_comment(record.comment):
            continue
        began = began or abs(record.submitted_at - identity.submitted_at) < _SAME_TIME_S
        own = record if began else own
    return own
