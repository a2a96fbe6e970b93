"""Why a job waits: the reasons that never clear by waiting, with what to change, and Slurm's estimate for the others.

The names are those of Slurm's `job_state_reason`, as squeue and sacct print them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpc_llm.runs.fields import iso
from hpc_llm.schedulers.job_record import JobRecord


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What is known of a job that waits."""

    sentence: str
    remedy: str
    """What to do, one action a line."""


_SUBMIT_AGAIN = "cancel it and submit it again "
_FOR_EVER = (
    # the request itself
    (r"PartitionNodeLimit", "it asks for fewer or more nodes than its partition allows",
     _SUBMIT_AGAIN + "with other --nodes, or on another --partition (`hpc-llm clusters NAME` lists the limits)"),
    (r"PartitionTimeLimit", "it asks for more time than its partition allows",
     _SUBMIT_AGAIN + "with a shorter --time, or on another --partition"),
    (r"PartitionConfig", "its partition does not take it as it is: too much of a node is asked for, or its account, group or QOS may not use the partition",
     _SUBMIT_AGAIN + "with less of a node (a smaller --gpus-per-node, --sbatch cpus-per-task=… or mem=…), or on another --partition"),
    (r"BadConstraints", "no node has all that it asks for",
     _SUBMIT_AGAIN + "without that --sbatch constraint=…, or with fewer GPUs, cores or less memory on a node"),
    (r"MaxMemPerLimit|QOSMaxMem\w{0,60}PerNode\w{0,60}|AssocMaxMemPerNode\w{0,60}", "it asks for more memory on a node than is allowed",
     _SUBMIT_AGAIN + "with a smaller --sbatch mem=…"),
    (r"(?:Assoc|QOS)Max\w{0,60}PerNode\w{0,60}", "it asks for more on one node than its account or QOS allows",
     _SUBMIT_AGAIN + "with a smaller --gpus-per-node"),
    (r"(?:Assoc|QOS)MaxWall\w{0,60}PerJob\w{0,60}|QOSTimeLimit|AssociationTimeLimit|TimeLimit",
     "it asks for more time than its account or QOS allows a job", _SUBMIT_AGAIN + "with a shorter --time"),
    (r"(?:Assoc|QOS)Max\w{0,60}Minutes\w{0,60}PerJob\w{0,60}", "its size times its time is more than its account or QOS allows a job",
     _SUBMIT_AGAIN + "with a shorter --time or fewer GPUs"),
    (r"(?:Assoc|QOS)Max\w{0,60}PerJob\w{0,60}|AssociationResourceLimit|QOSResourceLimit|MaxBBPerJob|InvalidBBPerJob",
     "it asks for more than its account or QOS allows a job",
     _SUBMIT_AGAIN + "with fewer --nodes or a smaller --gpus-per-node, or with another QOS: --sbatch qos=NAME"),
    (r"QOSMin\w{0,60}", "it asks for less than its QOS takes", _SUBMIT_AGAIN + "with more GPUs, or another QOS: --sbatch qos=NAME"),
    # the account
    (r"(?:Assoc|QOS)Grp(?!\w{0,60}Run)\w{0,60}Minutes\w{0,60}|QOSGrpWall\w{0,60}|AssocGrpWall\w{0,60}|QOSUsageThreshold",
     "the budget of its account or QOS is used up",
     "ask whoever owns the account for more, or " + _SUBMIT_AGAIN + "under another one: --account NAME"),
    (r"InvalidAccount|AccountNotAllowed", "its account is not valid, or not allowed on its partition",
     _SUBMIT_AGAIN + "with another --account or --partition"),
    (r"InvalidQOS|QOSNotAllowed", "its QOS is not valid, or not allowed on its partition",
     _SUBMIT_AGAIN + "with another QOS: --sbatch qos=NAME, or another --partition"),
    # somebody holds it
    (r"JobHeldUser", "it is held", "release it: scontrol release {job}"),
    (r"JobHeldAdmin", "an administrator holds it", "ask the site why"),
    (r"JobHoldMaxRequeue", "Slurm holds it, because it was queued again too often",
     "look at its output, then release it: scontrol release {job}"),
    (r"launch_failed_requeued_held", "Slurm holds it, because it could not be started",
     "look at its output, then release it: scontrol release {job}"),
    # scontrol requeuehold, a prolog, or a code that the site chose for this: Slurm does not say which.
    (r"\w{0,60}requeued_held|\w{0,60}requeued_in_held_state|SpecialExit\w{0,60}",
     "it was queued again and is held, and Slurm does not say by whom",
     "look at its output, then release it: scontrol release {job}"),
    (r"DependencyNeverSatisfied", "the job that it waits for did not succeed",
     _SUBMIT_AGAIN + "without that --sbatch dependency=…"),
    # what it was to run on is gone
    (r"PartitionDown|PartitionInactive", "its partition is closed", "ask the site when it opens, or " + _SUBMIT_AGAIN + "on another --partition"),
    (r"ReservationDeleted|Reservation(?:Deleted|Invalid)\w{0,60}", "its reservation is gone",
     _SUBMIT_AGAIN + "without that --sbatch reservation=…"),
    (r"DeadLine", "it cannot end before its deadline", _SUBMIT_AGAIN + "without --sbatch deadline=…, or with a shorter --time"),
    (r"JobLaunchFailure|SystemFailure|FrontEndDown", "Slurm could not start it",
     "ask the site, or " + _SUBMIT_AGAIN.removesuffix(" ")),
)  # fmt: skip
"""Patterns of the reasons that never clear by waiting, what they mean, and what to change."""
_IN_TURN = {"JobArrayTaskLimit": "as many of its array run at once as --max-parallel allows"}
"""Reasons that clear by waiting, where Slurm's word does not say what was asked for."""
_COMPILED = [(re.compile(pattern), means, remedy) for pattern, means, remedy in _FOR_EVER]


def explain_wait(job: JobRecord, job_id: str | None, now: float) -> Wait:
    """What to say of a pending job.

    >>> explain_wait(JobRecord(state="PENDING", reason="JobHeldUser"), "7", 0.0).remedy
    'release it: scontrol release 7'
    >>> explain_wait(JobRecord(state="PENDING", reason="Priority", started_at=1.8e9), "7", 1.7e9).sentence
    'Priority; Slurm expects it to start at 2027-01-15T08:00:00+00:00'
    """
    # Most reasons are one word, with more behind it; some are a sentence: "job requeued in held state".
    word = re.split(r"[\s,(:]", job.reason or "", maxsplit=1)[0]
    if "requeued" in (job.reason or ""):
        word = (job.reason or "").replace(" ", "_")
    for pattern, means, remedy in _COMPILED:
        if word and pattern.fullmatch(word):
            do = remedy.replace("{job}", job_id or "JOB")
            return Wait(sentence=f"{word}: {means}, and waiting does not help: {do}", remedy=do)
    sentence = f"{word}: {_IN_TURN[word]}" if word in _IN_TURN else job.reason or "it waits for its turn"
    if job.started_at is not None and job.started_at > now:
        sentence += f"; Slurm expects it to start at {iso(job.started_at)}"
    return Wait(sentence=sentence, remedy="wait for it: `hpc-llm status --watch`")


def wait_in_vain(made_as: str, run_id: str) -> Wait:
    """What to say of a pending job whose folder `made_as` was renamed or moved: it fails as soon as it begins."""
    do = f"rename it back, or `hpc-llm cancel {run_id}` and submit it again"
    return Wait(
        sentence=f"its job will fail: it prints and works in {made_as}, where no folder is any more: {do}", remedy=do
    )
