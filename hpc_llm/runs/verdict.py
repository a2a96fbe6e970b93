"""From the evidence and the scheduler's record to one outcome. Pure: no clock, no command."""

from __future__ import annotations

from dataclasses import dataclass

from hpc_llm.run import Outcome
from hpc_llm.runs.evidence import Evidence
from hpc_llm.runs.slurm_records import JobRecord

_BY_STATE = {
    "TIMEOUT": (Outcome.TIMEOUT, "the time limit was reached"),
    "DEADLINE": (Outcome.TIMEOUT, "the job's deadline was reached"),
    "NODE_FAIL": (Outcome.NODE_FAIL, "a node failed"),
    "BOOT_FAIL": (Outcome.NODE_FAIL, "a node could not be started"),
    "PREEMPTED": (Outcome.PREEMPTED, "a job of higher priority took the nodes"),
    "OUT_OF_MEMORY": (Outcome.OOM_HOST, "the host's memory ran out"),
}
_OUTPUT_MISSING = (0, 53)
"""Exit code and signal of a job whose output file cannot be opened: its script is never started."""


@dataclass(frozen=True)
class Verdict:
    """How a run ended, and why in one sentence where there is more to say."""

    outcome: Outcome
    reason: str | None = None


def conclusive(evidence: Evidence) -> Verdict | None:
    """The verdict where the folder alone settles it, so that nobody needs to be asked."""
    if evidence.exit is None:
        return None
    if evidence.exit_code == 0:
        return by_result(evidence)
    stop = evidence.prelude_stop
    if stop is not None:
        return Verdict(Outcome.FAILED, stop)
    result_outcome = (evidence.result or {}).get("outcome")
    if evidence.is_device_oom or result_outcome == Outcome.INVALID:
        return by_result(evidence)
    return None


def by_record(evidence: Evidence, record: JobRecord) -> Verdict | None:
    """The verdict when the scheduler has one too; None while the job can still change."""
    if record.is_live:
        return None
    if _has_completed_result(evidence):
        return _finished(evidence, record.state)
    if record.out_of_memory:
        return Verdict(Outcome.OOM_HOST, "the host's memory ran out")
    if evidence.is_device_oom:
        return by_result(evidence)
    if record.state in _BY_STATE:
        outcome, reason = _BY_STATE[record.state]
        return Verdict(outcome, _with_nodes(reason, record))
    if record.state in ("CANCELLED", "REVOKED"):
        return Verdict(Outcome.CANCELLED, None if evidence.is_cancelled else _cancel_reason(record))
    if record.state == "COMPLETED":
        return by_result(evidence)
    return _failed(evidence, record)


def by_folder(evidence: Evidence) -> Verdict:
    """The verdict when no scheduler says more and the script has written its end."""
    if _has_completed_result(evidence):
        return _finished(evidence, "FAILED")
    if evidence.is_cancelled:
        return Verdict(Outcome.CANCELLED)
    if evidence.hit_time_limit:
        return Verdict(Outcome.TIMEOUT, "ended at its time limit")
    if evidence.is_host_oom:
        return Verdict(Outcome.OOM_HOST, "Slurm killed it because the host's memory ran out")
    if (evidence.exit or {}).get("signal") == "TERM" and not evidence.errors:
        return Verdict(Outcome.CANCELLED, "ended by SIGTERM, and no scheduler says why")
    return Verdict(Outcome.FAILED, evidence.failure_reason())


def by_result(evidence: Evidence) -> Verdict:
    """The verdict of the result that the worker left, or of its absence."""
    if evidence.is_device_oom:
        return Verdict(Outcome.OOM_DEVICE, evidence.failure_reason())
    if evidence.result is None:
        return Verdict(Outcome.FAILED, "the job ended without a result")
    outcome = _outcome(evidence.result.get("outcome"))
    reason = evidence.result.get("invalid_reason") or evidence.result.get("outcome_reason")
    return Verdict(outcome, reason)


def _outcome(word: object) -> Outcome:
    """The outcome that a record names; one that names none was written on a good end."""
    try:
        return Outcome(word or Outcome.COMPLETED)
    except ValueError:
        return Outcome.UNKNOWN


def _has_completed_result(evidence: Evidence) -> bool:
    return (evidence.result or {}).get("outcome") == Outcome.COMPLETED and not evidence.failures


def _finished(evidence: Evidence, state: str) -> Verdict:
    """The measurement is whole; what happened to the job afterwards does not take it back."""
    if state == "COMPLETED" or evidence.exit_code == 0:
        return Verdict(Outcome.COMPLETED)
    how = f"exit code {evidence.exit_code}" if evidence.exit_code is not None else state
    return Verdict(Outcome.COMPLETED, f"the result was already written when the job ended with {how}")


def _failed(evidence: Evidence, record: JobRecord) -> Verdict:
    if (record.exit_code, record.signal) == _OUTPUT_MISSING:
        return Verdict(Outcome.FAILED, "the output file could not be opened: its folder is missing on the compute node")
    if evidence.is_host_oom:
        return Verdict(Outcome.OOM_HOST, "Slurm killed it because the host's memory ran out")
    if evidence.exit is None and not evidence.errors:
        return Verdict(Outcome.FAILED, f"{_how(record)}; the script left no record of its end")
    return Verdict(Outcome.FAILED, evidence.failure_reason())


def _how(record: JobRecord) -> str:
    return f"ended by signal {record.signal}" if record.signal else f"exit code {record.exit_code}"


def _with_nodes(reason: str, record: JobRecord) -> str:
    return f"{reason} ({record.nodes})" if record.nodes and record.state.endswith("FAIL") else reason


def _cancel_reason(record: JobRecord) -> str:
    if record.reason == "Dependency":
        return "the job that it waited for did not succeed"
    return "cancelled outside of hpc-llm"
