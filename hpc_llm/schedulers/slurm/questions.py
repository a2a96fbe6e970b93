"""What Slurm says of our jobs. Each command asks for many at once; an answer counts only where it is about our job."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from hpc_llm.records.run import ARRAY
from hpc_llm.schedulers.answer import Answer, Printing
from hpc_llm.schedulers.identity import Identity, is_job_of, uuid_in_comment
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.slurm.clients import call, cluster_name
from hpc_llm.schedulers.slurm.records import (
    OUTPUT_FIELDS,
    SACCT_DELIMITER,
    SACCT_FIELDS,
    SQUEUE_FIELDS,
    Listing,
    compress_job_ids,
    latest,
    read_outputs,
    read_sacct,
    read_squeue,
)

AT_ONCE = 1000
"""Jobs that one command is asked for: its arguments have a limit."""
_SAME_TIME_S = 30.0
"""So far may Slurm's time of a submission be from that of the command, for a run that has no UUID."""
_DAY_S = 86400.0
_ALREADY_OVER = ("Invalid job id", "already completing or completed")
_INVALID_FIELD = re.compile(r"[Ii]nvalid field requested: \"?(\w+)")
_unknown_fields: set[str] = set()
"""What the sacct of this site does not know: fields come and go with Slurm's versions, and one less is no silence."""
_ANY_STATE = "CA,CD,F,TO,NF,PR,OOM,BF,DL,PD,R,RQ,S"
"""Without it sacct leaves out jobs that were cancelled before they could start."""


def ask(identities: Iterable[Identity]) -> Answer:
    """What Slurm knows of these runs: accounting for all, then the queue for those whose fate accounting leaves open.

    Runs of another cluster are not asked for: this one may have a stranger's job of the same id.
    """
    wanted = list(identities)
    if not wanted:
        return Answer()
    here = cluster_name()
    ours = [one for one in wanted if not one.cluster or not here or one.cluster == here]
    if not ours:
        return Answer(cluster=here)
    known = [one for one in ours if one.job_id is not None]
    records, answered, complaint = _ask_by_id(known)
    nameless = [one for one in ours if one.job_id is None and one.uuid is not None]
    job_ids: dict[object, str] = {}
    if nameless:
        found, job_ids, has_answered, said = _ask_by_uuid(nameless)
        records, answered, complaint = records | found, answered and has_answered, complaint or said
    return Answer(records, job_ids, answered, "" if answered else complaint, here)


def _ask_by_id(identities: Sequence[Identity]) -> tuple[dict[object, JobRecord], bool, str]:
    records: dict[object, JobRecord] = {}
    answered, complaint = True, ""
    for some in _chunks(identities):
        accounted, sacct_complaint = _sacct([f"--jobs={_parents(some)}"])
        own = _proven(some, accounted.jobs)
        # Submission and start of a job reach the accounting database seconds late, many sites keep none, and it takes the
        # queue to see that a job which lost its node waits for another one.
        # A daemon that died leaves jobs running in it for ever that the queue has long seen end.
        doubtful = [one for one in some if one.key not in own or own[one.key].may_be_outdated or own[one.key].is_live]
        if doubtful:
            queued, squeue_complaint = _in_queue(doubtful)
            for key, record in queued.items():
                if record.is_live or key not in own or own[key].is_live:
                    own[key] = record
            if not squeue_complaint:  # accounting may still have it as waiting when the queue has let it go
                stale = [one.key for one in doubtful if one.key in own and one.key not in queued]
                own = {key: record for key, record in own.items() if key not in stale or record.state != "PENDING"}
            unlisted = [one for one in doubtful if one.key not in queued]
            if squeue_complaint and any(one.key not in own or own[one.key].may_be_outdated for one in unlisted):
                answered = False
                complaint = "; ".join(filter(None, (sacct_complaint, squeue_complaint)))
        records |= own
    return records, answered, complaint


def _ask_by_uuid(
    identities: Sequence[Identity],
) -> tuple[dict[object, JobRecord], dict[object, str], bool, str]:
    """Runs whose job id nobody wrote down: looked for among all jobs of the user, by comment and by name."""
    listed, squeue_complaint = _squeue([f"--user={os.getuid()}"])
    mine = listed.jobs
    records, job_ids = _by_uuid(identities, mine)
    more, ids = _by_output([one for one in identities if one.key not in records], mine)
    records, job_ids = records | more, job_ids | ids
    more, ids = _by_name([one for one in identities if one.key not in records])
    return records | more, job_ids | ids, not squeue_complaint, squeue_complaint


def _by_output(
    identities: Sequence[Identity], mine: Mapping[str, Sequence[JobRecord]]
) -> tuple[dict[object, JobRecord], dict[object, str]]:
    """Jobs of the user that print into these runs' folders and carry no other UUID: a site had rewritten name and comment."""
    if not identities:
        return {}, {}
    outputs: dict[str, list[str]] = {}
    for job_id, comment, output in _outputs([f"--user={os.getuid()}"])[0]:
        if uuid_in_comment(comment) is None:
            outputs.setdefault(output, []).append(job_id)
    records: dict[object, JobRecord] = {}
    job_ids: dict[object, str] = {}
    for one in identities:
        ids = outputs.get(one.output or "", [])
        record = latest(mine.get(ids[0], ())) if len(ids) == 1 else None
        if record is not None:
            records[one.key], job_ids[one.key] = record, ids[0]
    return records, job_ids


def _by_name(identities: Sequence[Identity]) -> tuple[dict[object, JobRecord], dict[object, str]]:
    """What accounting has of jobs that the queue has forgotten."""
    records: dict[object, JobRecord] = {}
    job_ids: dict[object, str] = {}
    for some in _chunks(identities):
        since = min((one.submitted_at or 0.0) for one in some) - _DAY_S  # whatever the clocks of the site say
        start = datetime.fromtimestamp(max(since, _DAY_S)).strftime("%Y-%m-%dT%H:%M:%S")
        names = ",".join(sorted({one.job_name for one in some if one.job_name}))
        period = [f"--starttime={start}", "--endtime=now+1days", f"--state={_ANY_STATE}"]
        accounted, _ = _sacct([*period, f"--user={os.getuid()}", f"--name={names}"])
        more, ids = _by_uuid(some, accounted.jobs)
        records, job_ids = records | more, job_ids | ids
    return records, job_ids


def _by_uuid(
    identities: Sequence[Identity], jobs: Mapping[str, Sequence[JobRecord]]
) -> tuple[dict[object, JobRecord], dict[object, str]]:
    records: dict[object, JobRecord] = {}
    job_ids: dict[object, str] = {}
    for job_id, found in jobs.items():
        for one in identities:
            task = job_id.partition("_")[2]
            if task != ("" if one.array_task is None else str(one.array_task)):
                continue
            own = latest(record for record in found if _is_of(one, record))
            if own is not None:
                records[one.key], job_ids[one.key] = own, job_id
    return records, job_ids


def _proven(identities: Sequence[Identity], jobs: Mapping[str, Sequence[JobRecord]]) -> dict[object, JobRecord]:
    """Of all that has the job id of a run, what is of that run: an id may have been given to somebody else."""
    found: dict[object, JobRecord] = {}
    for one in identities:
        of_id = jobs.get(one.job_id or "", ())
        if one.uuid is None:
            own = _by_time(one, of_id)
        else:
            own = latest(record for record in of_id if _is_of(one, record))
            own = own or _by_time(one, [record for record in of_id if _is_nameless(record)])
        if own is not None:
            found[one.key] = own
    return found


def _is_nameless(record: JobRecord) -> bool:
    """Whether the job ended before accounting had learned of it: then it has neither name nor comment."""
    return not record.is_live and record.job_name in (None, "allocation") and record.comment is None


def _is_of(identity: Identity, record: JobRecord) -> bool:
    if identity.uuid is None or (identity.cluster and record.cluster and identity.cluster != record.cluster):
        return False
    return is_job_of(identity.uuid, record.job_name, record.comment)


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


def find_job(job_id: str) -> tuple[JobRecord | None, str]:
    """What the queue knows of the job with that id, whosever it is; and what it complains about where it does not answer."""
    listed, complaint = _squeue([f"--jobs={job_id.split('_')[0]}"])
    found = latest(listed.jobs.get(job_id, ()))
    if found is not None or "Invalid job id" in complaint:  # that it has forgotten
        return found, ""
    return None, complaint


def queued(identities: Collection[Identity]) -> tuple[dict[object, JobRecord], str]:
    """What the queue alone has of these runs, by `Identity.key`, and why it does not speak of what is not among them.

    Only the queue tells whose an id is now: accounting has the jobs of all who ever had it.
    """
    found: dict[object, JobRecord] = {}
    for some in _chunks([one for one in identities if one.job_id is not None]):
        own, complaint = _in_queue(some)
        found |= own
        if complaint:
            return found, complaint
    return found, ""


def _in_queue(identities: Sequence[Identity]) -> tuple[dict[object, JobRecord], str]:
    """What the queue has of these runs; and what it complains about where it may have more."""
    listing, complaint = _squeue([f"--jobs={_parents(identities)}"])
    parents = sorted({_parent(one) for one in identities})
    if "Invalid job id" in complaint and len(parents) > 1:
        half = parents[len(parents) // 2]  # one id that it does not like must not speak for the others
        parts = [
            _in_queue([one for one in identities if _parent(one) < half]),
            _in_queue([one for one in identities if _parent(one) >= half]),
        ]
        return parts[0][0] | parts[1][0], " ".join(said for _, said in parts).strip()
    if "Invalid job id" in complaint:  # that it says of a single job which it has forgotten
        complaint = ""
    listed = listing.jobs
    own = _proven(identities, listed)
    rest = [one for one in identities if one.key not in own and _may_be(one, listed.get(one.job_id or "", ()))]
    return own | _proven_by_output(rest, listed), complaint


def _may_be(identity: Identity, records: Sequence[JobRecord]) -> bool:
    """Whether a job of this id is the user's own and says nothing against being the run's."""
    return any(one.user_id == os.getuid() and uuid_in_comment(one.comment) is None for one in records)


def _proven_by_output(
    identities: Sequence[Identity], listed: Mapping[str, Sequence[JobRecord]]
) -> dict[object, JobRecord]:
    """Jobs whose name and comment a site has rewritten: that they print into the run's folder proves them as well."""
    if not identities:
        return {}
    outputs = {job_id: output for job_id, _, output in _outputs([f"--jobs={_parents(identities)}"])[0]}
    return {
        one.key: record
        for one in identities
        if one.output is not None
        and outputs.get(one.job_id or "") == one.output
        and (record := latest(listed.get(one.job_id or "", ()))) is not None
    }


def jobs_under(logs: Path) -> tuple[list[Printing], str | None]:
    """Jobs of this user in the queue that hold a UUID of ours and print into `logs`; and why the queue gave no answer."""
    found = []
    live = "--states=PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING"
    outputs, complaint = _outputs([live, f"--user={os.getuid()}"])
    for job_id, comment, stdout in outputs:
        folder, uuid = Path(stdout).parent, uuid_in_comment(comment)
        is_task = folder.parent.parent == logs and folder.parent.name.startswith(ARRAY)
        if uuid is not None and (is_task or folder.parent == logs):
            found.append(Printing(job_id, uuid, _run_of_task(folder, logs) if is_task else folder))
    return found, complaint


def _run_of_task(link: Path, logs: Path) -> Path:
    """The run to which the link of an array's task leads; the link itself where it is gone."""
    try:
        return logs / Path(os.readlink(link)).name
    except OSError:
        return link


def _outputs(what: Sequence[str]) -> tuple[list[tuple[str, str, str]], str | None]:
    """Of each job asked for its id, its comment and the path to which it prints; and why there was no answer."""
    told, complaint = call(["squeue", "--array", *what, f"--Format={OUTPUT_FIELDS}"])
    if told is None:
        return [], complaint
    jobs, flaw = read_outputs(told)
    return jobs, flaw or None


def scancel(job_ids: Sequence[str], job_name: str | None) -> str:
    """Ask Slurm to end these jobs, which its queue has just proven to be ours; returns what it complained about.

    The name, which ends with the run's UUID, keeps a stranger safe whose job got the id a moment ago. Not for tasks of an
    array: with any filter scancel ends the whole array as long as it waits (seen with Slurm 22.05).
    """
    complaints = []
    for job_id in job_ids:
        named = [f"--name={job_name}"] if job_name and "_" not in job_id else []
        complaints.append(call(["scancel", *named, job_id])[1])
    return "\n".join(filter(None, complaints))


def end(job_ids: Sequence[str], job_name: str | None) -> str:
    """End jobs, tasks of one array in one word; returns what scancel complained about, but for what was over."""
    complaint = scancel(compress_job_ids(list(job_ids)), job_name)
    lines = (line for line in complaint.splitlines() if not any(words in line for words in _ALREADY_OVER))
    return " ".join(line for line in lines if line.strip())


def _sacct(what: Sequence[str]) -> tuple[Listing, str]:
    """What accounting lists, and why nothing follows from what it does not."""
    # With duplicates: where ids were given out anew the newest job of an id may be a stranger's.
    while True:
        fields = ",".join(name for name in SACCT_FIELDS.split(",") if name.lower() not in _unknown_fields)
        options = ["--duplicates", "--parsable2", f"--delimiter={SACCT_DELIMITER}", f"--format={fields}"]
        told, complaint = call(["sacct", *options, *what])
        if told is not None:
            listing = read_sacct(told)
            return listing, listing.flaw
        refused = _INVALID_FIELD.search(complaint)
        if refused is None or refused[1].lower() in _unknown_fields or refused[1].lower() not in SACCT_FIELDS.lower():
            return Listing({}), complaint
        _unknown_fields.add(refused[1].lower())


def _squeue(what: Sequence[str]) -> tuple[Listing, str]:
    """What the queue lists, and why nothing follows from what it does not: the header tells an empty list from no answer."""
    told, complaint = call(["squeue", "--array", "--states=all", *what, f"--Format={SQUEUE_FIELDS}"])
    if told is None:
        return Listing({}), complaint
    listing = read_squeue(told)
    return listing, listing.flaw


def _chunks(identities: Sequence[Identity]) -> Iterator[Sequence[Identity]]:
    """So many that their jobs fit one command: a thousand tasks are one array to ask for."""
    some: list[Identity] = []
    parents: set[str] = set()
    for one in identities:
        parent = (one.job_id or one.uuid or "").split("_")[0]
        if len(parents) == AT_ONCE and parent not in parents:
            yield some
            some, parents = [], set()
        some.append(one)
        parents.add(parent)
    if some:
        yield some


def _parent(identity: Identity) -> int:
    """The number of its job, or of the array that holds it."""
    return int((identity.job_id or "0").split("_")[0])


def _parents(identities: Collection[Identity]) -> str:
    return ",".join(map(str, sorted({_parent(one) for one in identities})))
