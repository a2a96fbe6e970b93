"""The state of many runs at once: their folders first, then one question to Slurm for those that need it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from hpc_llm.run import Outcome, RunPaths
from hpc_llm.runs.adoption import adopt
from hpc_llm.runs.evidence import Evidence
from hpc_llm.runs.findings import Finding, find, keep_answers, settle
from hpc_llm.runs.progress import read_progress
from hpc_llm.runs.scheduler import ask
from hpc_llm.runs.slurm_records import JobRecord


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """What became of one run so far."""

    run_id: str
    job_id: str | None
    cluster: str | None
    method: str | None
    state: str
    """The scheduler's word: PENDING, RUNNING, COMPLETED, TIMEOUT."""
    outcome: Outcome | None
    """None until the run is over."""
    reason: str | None
    exit_code: int | None
    started_at: str | None
    """ISO 8601, UTC."""
    elapsed_s: float | None
    tokens_per_second: float | None
    """Of the result, or of the latest measured steps while it runs."""
    step: int | None
    steps: int | None
    """All optimizer steps planned."""

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    def to_dict(self) -> dict[str, Any]:
        """JSON types, with stable keys."""
        return {**asdict(self), "outcome": self.outcome.value if self.outcome else None}


def status(runs: Sequence[RunPaths], now: float | None = None) -> list[RunStatus]:
    """The status of `runs`, in their order. `now` is Unix time, the clock's by default."""
    moment = time.time() if now is None else now
    evidence = [Evidence(run) for run in runs]
    settled = [settle(e) for e in evidence]
    open_jobs = [e.identity for e, finding in zip(evidence, settled, strict=True) if finding is None]
    answer = ask([identity for identity in open_jobs if identity])
    adopt([(e.run, e.identity) for e in evidence if e.identity], answer)
    found = [finding or find(e, answer, moment) for e, finding in zip(evidence, settled, strict=True)]
    keep_answers((e, new) for e, new, old in zip(evidence, found, settled, strict=True) if old is None)
    return [_status(e, finding, moment) for e, finding in zip(evidence, found, strict=True)]


def _status(evidence: Evidence, finding: Finding, now: float) -> RunStatus:
    result, record, progress = evidence.result or {}, finding.record, read_progress(evidence.run.steps)
    started_at = _started_at(evidence, record)
    verdict = finding.verdict
    return RunStatus(
        run_id=evidence.run.run_id,
        job_id=evidence.identity.job_id if evidence.identity else None,
        cluster=evidence.plan.get("cluster"),
        method=evidence.plan.get("method"),
        state=finding.state,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else finding.reason,
        exit_code=_exit_code(evidence, finding),
        started_at=_iso(started_at),
        elapsed_s=_elapsed(evidence, finding, started_at, now),
        tokens_per_second=result.get("tokens_per_second") or progress.tokens_per_second,
        step=progress.step,
        steps=evidence.plan.get("steps"),
    )


def _exit_code(evidence: Evidence, finding: Finding) -> int | None:
    """The script's own, else Slurm's as a shell would put it: 128 and the signal. None where the job was taken down."""
    if finding.verdict is None:
        return None
    if evidence.exit_code is not None:
        return evidence.exit_code
    record = finding.record
    if record is None or record.state not in ("COMPLETED", "FAILED", "OUT_OF_MEMORY"):
        return None
    return 128 + record.signal if record.signal else record.exit_code


def _started_at(evidence: Evidence, record: JobRecord | None) -> float | None:
    if record is not None and record.state != "PENDING" and record.started_at:
        return record.started_at
    for source in (evidence.exit, evidence.process):
        if source and source.get("started_at"):
            return float(source["started_at"])
    return None


def _elapsed(evidence: Evidence, finding: Finding, started_at: float | None, now: float) -> float | None:
    if started_at is None:
        return None
    if finding.record is not None and finding.record.elapsed_s is not None:
        return finding.record.elapsed_s
    ended_at = (evidence.exit or {}).get("ended_at")
    if finding.verdict is None:
        return round(now - started_at, 3)
    return round(ended_at - started_at, 3) if ended_at else None


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")
