"""The calls to Slurm's own commands. Each asks once for all jobs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hpc_llm.runs.slurm_records import SACCT_FIELDS, SQUEUE_FIELDS, JobRecord, parse_sacct, parse_squeue
from hpc_llm.submit.environment import without_slurm

_TIMEOUT_S = 120


@dataclass(frozen=True)
class Answer:
    """What the scheduler said about the jobs asked for."""

    records: dict[str, JobRecord]
    answered: bool
    """Whether sacct or squeue answered at all; if so, a job without a record is unknown to Slurm."""
    complaint: str = ""
    """Why not, in the commands' own words."""


def ask(job_ids: Collection[str]) -> Answer:
    """Records of these jobs: sacct for all, then squeue for those whose fate sacct leaves open."""
    if not job_ids:
        return Answer({}, answered=True)
    accounted, sacct_complaint = _sacct(job_ids)
    records = parse_sacct(accounted or "")
    # Submission and start of a job reach the accounting database seconds late, many sites keep none, and it takes squeue
    # to see that a job which lost its node waits for another one.
    doubtful = [job_id for job_id in job_ids if job_id not in records or records[job_id].may_be_outdated]
    if not doubtful:
        return Answer(records, answered=True)
    queued, squeue_complaint = _squeue(doubtful)
    for job_id, record in parse_squeue(queued or "").items():
        if record.is_live or job_id not in records:
            records[job_id] = record
    # squeue calls it an error when the one job asked for is no longer in its memory.
    answered = accounted is not None or queued is not None or "Invalid job id" in squeue_complaint
    return Answer(records, answered, "" if answered else f"{sacct_complaint}; {squeue_complaint}")


def _sacct(job_ids: Collection[str]) -> tuple[str | None, str]:
    return _run(["sacct", "--parsable2", f"--jobs={_parents(job_ids)}", f"--format={SACCT_FIELDS}"])


def _squeue(job_ids: Collection[str]) -> tuple[str | None, str]:
    what = ["--array", "--states=all", f"--jobs={_parents(job_ids)}"]
    return _run(["squeue", "--noheader", *what, f"--Format={SQUEUE_FIELDS}"])


def _parents(job_ids: Collection[str]) -> str:
    """The jobs and arrays that hold these: a thousand tasks are one array to ask for."""
    return ",".join(sorted({job_id.split("_")[0] for job_id in job_ids}, key=int))


def scancel(job_ids: Sequence[str]) -> str:
    """Ask Slurm to end these jobs; returns what it complained about, jobs that were already over included."""
    _, complaint = _run(["scancel", *job_ids])
    return complaint


def _run(command: list[str]) -> tuple[str | None, str]:
    """Stdout, or None when the command failed; and what it printed to stderr."""
    # Without the limit long array expressions end in "...", which would lose tasks.
    environ = {**without_slurm(os.environ), "SLURM_BITSTR_LEN": "0"}
    try:
        done = subprocess.run(
            command, check=False, env=environ, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except FileNotFoundError:
        return None, f"{command[0]} is not on PATH"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} gave no answer in {_TIMEOUT_S} s"
    return (done.stdout if done.returncode == 0 else None), done.stderr.strip()
