"""What one look at a run concludes: its folder, its processes on this machine, or the scheduler's record of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_llm.run import Outcome, RunPaths, read_json, write_json
from hpc_llm.runs.evidence import Evidence
from hpc_llm.runs.scheduler import Answer
from hpc_llm.runs.slurm_records import JobRecord
from hpc_llm.runs.verdict import Verdict, by_folder, by_record, by_result, conclusive
from hpc_llm.submit.process import is_alive, is_on_this_host

GRACE_S = 60.0
"""How long a job may be missing from every list, or its files from a slow file system, before it counts as lost."""


@dataclass(frozen=True)
class Finding:
    """What one look concluded about one run."""

    state: str
    verdict: Verdict | None = None
    reason: str | None = None
    record: JobRecord | None = None


def settle(evidence: Evidence) -> Finding | None:
    """What needs no question: the folder settles it, or an earlier answer was final and is kept."""
    kept = _read_kept_answer(evidence.run)
    if kept is not None:
        return kept
    verdict = conclusive(evidence)
    return None if verdict is None else Finding(_state_of(verdict), verdict)


def find(evidence: Evidence, answer: Answer, now: float) -> Finding:
    """The finding on a run that is not settled; `answer` is about the jobs of all such runs, `now` is Unix time."""
    identity = evidence.identity
    if identity is None or (
        identity.scheduler == "slurm" and identity.job_id is None and not answer.record_of(identity)
    ):
        return _unsubmitted(evidence, now)
    if identity.scheduler == "local":
        return _find_local(evidence, now)
    record = answer.record_of(identity)
    if record is not None:
        return _find_by_record(evidence, record, now)
    if evidence.exit is not None:
        return _by_folder(evidence)
    if answer.belongs_to(identity):
        return Finding(
            "UNKNOWN", reason=f"it is a job of Slurm's cluster {answer.belongs_to(identity)}: look from there"
        )
    if not answer.can_tell(identity):
        return Finding("UNKNOWN", reason=f"Slurm does not answer: {answer.complaint}")
    if evidence.is_cancelled:  # a task cancelled before its array split leaves no record at all
        return Finding("CANCELLED", Verdict(Outcome.CANCELLED))
    if now - _submitted_at(evidence) < GRACE_S:
        return Finding("PENDING", reason="not yet in Slurm's lists")
    return _lost(f"Slurm no longer knows job {identity.job_id}, and its script left no record")


def _find_by_record(evidence: Evidence, record: JobRecord, now: float) -> Finding:
    if record.is_live and _ended_long_ago(evidence, record, now):
        return _by_folder(evidence)
    verdict = by_record(evidence, record)
    if verdict is None:
        return Finding(record.state, reason=record.reason if record.state == "PENDING" else None, record=record)
    if record.state == "COMPLETED" and evidence.exit is None and now - (record.ended_at or now) < GRACE_S:
        return Finding("COMPLETING", reason="its files are not visible here yet", record=record)
    return Finding(record.state, verdict, record=record)


def _ended_long_ago(evidence: Evidence, record: JobRecord, now: float) -> bool:
    """Whether the script has written its end and Slurm's list missed it; a requeued job has started again since."""
    ended_at = (evidence.exit or {}).get("ended_at")
    return ended_at is not None and record.state == "RUNNING" and (record.started_at or 0) <= ended_at < now - GRACE_S


def _find_local(evidence: Evidence, now: float) -> Finding:
    if evidence.exit is not None:
        return _by_folder(evidence)
    marks = evidence.process or {}
    if "script" in marks:
        return _local_script(marks["script"])
    if evidence.is_cancelled:
        return Finding("CANCELLED", Verdict(Outcome.CANCELLED, "before it started"))
    leaders = [mark for mark in (marks.get("queue"), evidence.identity and evidence.identity.process) if mark]
    if not any(is_on_this_host(leader) for leader in leaders):
        return Finding("PENDING", reason=_elsewhere(leaders))
    if any(is_alive(leader) for leader in leaders):
        return Finding("PENDING", reason="waits for the run before it")
    return _lost("the process that was to start it is gone")


def _local_script(script: dict[str, Any]) -> Finding:
    if not is_on_this_host(script):
        return Finding("RUNNING", reason=_elsewhere([script]))
    if is_alive(script):
        return Finding("RUNNING")
    return _lost(f"process {script['pid']} is gone and left no record")


def _elsewhere(processes: list[Any]) -> str:
    hosts = sorted({str(process.get("host")) for process in processes})
    return f"as last seen; it belongs to {', '.join(hosts) or 'another machine'}, look from there"


def _unsubmitted(evidence: Evidence, now: float) -> Finding:
    if evidence.is_cancelled:
        return Finding("CANCELLED", Verdict(Outcome.CANCELLED, "before it was submitted"))
    if evidence.result is not None:  # a copy of a run, without what the submission left
        verdict = by_result(evidence)
        return Finding(_state_of(verdict), verdict)
    if now - _modified_at(evidence.run.experiment, now) < GRACE_S:
        return Finding("SUBMITTING")
    return _lost("it was never submitted: the command that made it was interrupted")


def _by_folder(evidence: Evidence) -> Finding:
    verdict = by_folder(evidence)
    return Finding(_state_of(verdict), verdict)


def _lost(reason: str) -> Finding:
    return Finding("UNKNOWN", Verdict(Outcome.UNKNOWN, reason))


def _state_of(verdict: Verdict) -> str:
    """The scheduler's word for an outcome that only the folder told."""
    words = {Outcome.OOM_DEVICE: "FAILED", Outcome.OOM_HOST: "OUT_OF_MEMORY", Outcome.INVALID: "COMPLETED"}
    return words.get(verdict.outcome, verdict.outcome.value)


def _submitted_at(evidence: Evidence) -> float:
    return (evidence.identity and evidence.identity.submitted_at) or 0.0


def _modified_at(path: Path, default: float) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return default


def _read_kept_answer(run: RunPaths) -> Finding | None:
    kept = read_json(run.kept_answer)
    if kept is None:
        return None
    try:
        verdict = Verdict(Outcome(kept["outcome"]), kept["reason"])
        return Finding(kept["state"], verdict, record=JobRecord(**kept["record"]))
    except (KeyError, TypeError, ValueError):  # damaged: ask again
        return None


def keep_answers(found: Iterable[tuple[Evidence, Finding]], seconds: float = 0.3) -> None:
    """Keep Slurm's final answers with their runs: sites forget their jobs after days.

    A look never spends more than `seconds` on it; what is not kept now is asked for again by the next look.
    """
    deadline = time.monotonic() + seconds
    for evidence, finding in found:
        if finding.verdict is None or finding.record is None:
            continue
        if time.monotonic() > deadline:
            return
        kept = {"outcome": finding.verdict.outcome.value, "reason": finding.verdict.reason, "state": finding.state}
        with contextlib.suppress(OSError):  # somebody else's run can be asked for again
            write_json(evidence.run.kept_answer, {**kept, "record": vars(finding.record)})
