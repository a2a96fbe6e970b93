"""What Slurm says of our jobs. Each command asks for many at once; an answer counts only where it is about our job."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from hpc_llm.records.run import ARRAY
from hpc_llm.schedulers.answer import Answer, Printing
from hpc_llm.schedulers.identity import Identity, uuid_in_comment
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.slurm.clients import call, cluster_name
from hpc_llm.schedulers.slurm.proving import proven, proven_by_note, proven_by_uuid, without_a_uuid
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
_DAY_S = 86400.0
_ALREADY_OVER = ("Invalid job id", "already completing or completed")
_INVALID_FIELD = re.compile(r"[Ii]nvalid field requested: \"?(\w+)")
_unknown_fields: set[str] = set()
"""What the sacct of this site does not know: fields come and go with Slurm's versions, and one less is no silence."""
_ANY_STATE = "CA,CD,F,TO,NF,PR,OOM,BF,DL,PD,R,RQ,S"
"""Without it sacct leaves out jobs that were cancelled before they could start."""


@dataclass
class _Found:
    """What is found of some runs, by `Identity.key`."""

    records: dict[object, JobRecord] = field(default_factory=dict)
    job_ids: dict[object, str] = field(default_factory=dict)
    doubts: dict[object, str] = field(default_factory=dict)
    """What may be theirs and is not proven to be."""
    complaint: str = ""
    """Why nothing follows from what is not found."""

    def add(self, other: _Found) -> None:
        self.records |= other.records
        self.job_ids |= other.job_ids
        self.doubts |= other.doubts
        self.complaint = self.complaint or other.complaint

    def lacks(self, identity: Identity) -> bool:
        return identity.key not in self.records and identity.key not in self.doubts


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
    found = _ask_by_id([one for one in ours if one.job_id is not None])
    nameless = [one for one in ours if one.job_id is None and one.uuid is not None]
    if nameless:
        found.add(_ask_by_uuid(nameless))
    return Answer(found.records, found.job_ids, not found.complaint, found.complaint, here, found.doubts)


def _ask_by_id(identities: Sequence[Identity]) -> _Found:
    found = _Found()
    for some in _chunks(identities):
        accounted, sacct_complaint = _sacct([f"--jobs={_parents(some)}"])
        own = proven(some, accounted.jobs, in_queue=False)
        # Submission and start of a job reach the accounting database seconds late, many sites keep none, and it takes the
        # queue to see that a job which lost its node waits for another one.
        # A daemon that died leaves jobs running in it for ever that the queue has long seen end.
        doubtful = [one for one in some if one.key not in own or own[one.key].may_be_outdated or own[one.key].is_live]
        if doubtful:
            queue = _in_queue(doubtful)
            _correct(own, doubtful, queue)
            found.doubts |= queue.doubts
            unlisted = [one for one in doubtful if one.key not in queue.records]
            if queue.complaint and any(one.key not in own or own[one.key].may_be_outdated for one in unlisted):
                found.complaint = "; ".join(filter(None, (sacct_complaint, queue.complaint)))
        found.records |= own
    return found


def _correct(own: dict[object, JobRecord], doubtful: Sequence[Identity], queue: _Found) -> None:
    """Have the queue's word in the place of accounting's where it is the later one."""
    for key, record in queue.records.items():
        if record.is_live or key not in own or own[key].is_live:
            own[key] = record
    for one in doubtful:
        if one.key in queue.doubts:  # the queue shows comments, by which accounting's word of it is not proven
            own.pop(one.key, None)
        # accounting may still have it as waiting when the queue has let it go
        elif (
            not queue.complaint and one.key not in queue.records and one.key in own and own[one.key].state == "PENDING"
        ):
            del own[one.key]


def _ask_by_uuid(identities: Sequence[Identity]) -> _Found:
    """Runs whose job id nobody wrote down: looked for among all jobs of the user, by their comments, then by this user's note."""
    listed, complaint = _squeue([f"--user={os.getuid()}"])
    found = _Found(*proven_by_uuid(identities, listed.jobs, in_queue=True), complaint=complaint)
    found.add(_by_note([one for one in identities if found.lacks(one)], listed.jobs, [f"--user={os.getuid()}"]))
    found.add(_by_name([one for one in identities if found.lacks(one)]))
    return found


def _by_note(identities: Sequence[Identity], listed: Mapping[str, Sequence[JobRecord]], which: Sequence[str]) -> _Found:
    """Jobs of the user that carry no UUID: a site had rewritten the comment."""
    jobs = without_a_uuid(listed)
    if not identities or not jobs:
        return _Found()
    outputs = {job_id: output for job_id, _, output in _outputs(which)[0]}
    return _Found(*proven_by_note(identities, jobs, outputs))


def _by_name(identities: Sequence[Identity]) -> _Found:
    """What accounting has of jobs that the queue has forgotten."""
    found = _Found()
    for some in _chunks(identities):
        since = min((one.submitted_at or 0.0) for one in some) - _DAY_S  # whatever the clocks of the site say
        start = datetime.fromtimestamp(max(since, _DAY_S)).strftime("%Y-%m-%dT%H:%M:%S")
        names = ",".join(sorted({one.job_name for one in some if one.job_name}))
        period = [f"--starttime={start}", "--endtime=now+1days", f"--state={_ANY_STATE}"]
        accounted, _ = _sacct([*period, f"--user={os.getuid()}", f"--name={names}"])
        found.add(_Found(*proven_by_uuid(some, accounted.jobs, in_queue=False)))
    return found


def find_job(job_id: str) -> tuple[JobRecord | None, str]:
    """What the queue knows of the job with that id, whosever it is; and what it complains about where it does not answer."""
    listed, complaint = _squeue([f"--jobs={job_id.split('_')[0]}"])
    found = latest(listed.jobs.get(job_id, ()))
    if found is not None or "Invalid job id" in complaint:  # that it has forgotten
        return found, ""
    return None, complaint


def members(job_id: str) -> dict[str, JobRecord]:
    """What the queue knows of the members of the array with that id, by their own ids: it lists none under that of the array."""
    if "_" in job_id:
        return {}
    listed, _ = _squeue([f"--jobs={job_id}"])
    found = {one: latest(records) for one, records in listed.jobs.items() if one.startswith(f"{job_id}_")}
    return {one: record for one, record in found.items() if record is not None}


def queued(identities: Collection[Identity]) -> tuple[dict[object, JobRecord], str]:
    """What the queue alone has of these runs, by `Identity.key`, and why it does not speak of what is not among them.

    Only the queue tells whose an id is now: accounting has the jobs of all who ever had it.
    """
    found = _Found()
    for some in _chunks([one for one in identities if one.job_id is not None]):
        found.add(_in_queue(some))
        if found.complaint:
            break
    return found.records, found.complaint


def _in_queue(identities: Sequence[Identity]) -> _Found:
    """What the queue has of these runs; and what it complains about where it may have more."""
    which = [f"--jobs={_parents(identities)}"]
    listing, complaint = _squeue(which)
    parents = sorted({_parent(one) for one in identities})
    if "Invalid job id" in complaint and len(parents) > 1:
        half = parents[len(parents) // 2]  # one id that it does not like must not speak for the others
        parts = [
            _in_queue([one for one in identities if _parent(one) < half]),
            _in_queue([one for one in identities if _parent(one) >= half]),
        ]
        said = " ".join(one.complaint for one in parts).strip()
        parts[0].add(parts[1])
        return replace(parts[0], complaint=said)
    if "Invalid job id" in complaint:  # that it says of a single job which it has forgotten
        complaint = ""
    own = _Found(proven(identities, listing.jobs, in_queue=True), complaint=complaint)
    ids = {one.job_id for one in identities}
    of_id = {job_id: found for job_id, found in listing.jobs.items() if job_id in ids}
    own.add(_by_note([one for one in identities if own.lacks(one)], of_id, which))
    return own


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
