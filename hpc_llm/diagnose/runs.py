"""A run of ours: its records say more than its output, and the scheduler may say more than both."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.causes.catalogue import BY_ID, CAUSES
from hpc_llm.causes.cause import sign
from hpc_llm.causes.search import Found, signs_in
from hpc_llm.causes.tries import since
from hpc_llm.diagnose.diagnosis import Diagnosis, conclude
from hpc_llm.diagnose.inputs import diagnose_files, read_log
from hpc_llm.errors import RequestError
from hpc_llm.experiment import Plan
from hpc_llm.run import Outcome, RunPaths, Stop, is_run
from hpc_llm.runs.evidence import Evidence
from hpc_llm.runs.findings import Finding, find, settle
from hpc_llm.runs.progress import read_progress
from hpc_llm.runs.scheduler import ask

_STOP_CAUSES = {
    Stop.NO_MODULE_SYSTEM: "module_missing",
    Stop.MODULE_FAILED: "module_missing",
    Stop.NO_CONDA: "conda_not_initialised",
    Stop.ENV_NOT_ACTIVE: "conda_not_initialised",
    Stop.NO_TRAINING_STACK: "package_missing",
    Stop.NO_RUN_FOLDER: "config_error",
}
_OUTCOME_CAUSES: Mapping[Outcome, str] = {
    cause.outcome: cause.id
    for cause in CAUSES
    if cause.outcome not in (Outcome.FAILED, Outcome.INVALID, Outcome.UNKNOWN, Outcome.COMPLETED)
}
"""Outcomes that have one cause only."""
_SIGNAL_CAUSES = {137: ("host_oom", 41), 139: ("segfault", 60), 135: ("bus_error", 60), 134: ("segfault", 40)}
"""Exit codes of a script whose program was ended by a signal, with the precedence of this evidence."""

_WAITING = frozenset(("CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SUBMITTING"))
"""States of a run that has not started, or not started again."""


def diagnose_run(run: RunPaths) -> Diagnosis:
    """The diagnosis of a run from its folder; Slurm is asked where the folder leaves it open, and may not answer."""
    evidence = Evidence(run)
    finding = _finding(evidence)
    outcome = finding.verdict.outcome if finding.verdict else None
    going = None if outcome is not None or finding.state == "UNKNOWN" else finding.state
    if going in _WAITING:  # what its folder holds is of an earlier try
        return conclude(run.run_id, [], going=going)
    records = [*_failures(run), *_exit(evidence), *_scheduler(evidence, finding)]
    records += _invalid(evidence)
    logs = [read_log(path, path.name) for path in _outputs(run)]
    for log in logs:
        log.found = since(_last_try_at(evidence, finding), log.found)
    return conclude(
        run.run_id,
        logs,
        records,
        plan=_plan(evidence),
        facts=_facts(evidence, finding),
        completed=outcome is Outcome.COMPLETED,
        going=going,
    )


def diagnose_job(paths: Sequence[Path]) -> Diagnosis:
    """The diagnosis of one job of `jobs_under`: the folder of a run of ours, or the files that another job left."""
    if is_run(paths[0]):
        return diagnose_run(RunPaths(paths[0].absolute()))
    return diagnose_files(paths)


def _finding(evidence: Evidence) -> Finding:
    settled = settle(evidence)
    if settled is not None:
        return settled
    return find(evidence, ask([evidence.identity] if evidence.identity else []), time.time())


def _last_try_at(evidence: Evidence, finding: Finding) -> float:
    """When the last of several tries began, in Unix time; 0 if there was one only."""
    left = evidence.exit or {}
    if left.get("restart_count"):
        return float(left.get("started_at") or 0)
    started_at = finding.record.started_at if finding.record and finding.verdict is None else None
    return started_at or 0.0


def _outputs(run: RunPaths) -> list[Path]:
    return [path for path in (run.stdout, run.stderr) if path.is_file()]


def _plan(evidence: Evidence) -> Plan | None:
    try:
        return Plan.from_dict(evidence.plan)
    except (RequestError, TypeError):
        return None


def _facts(evidence: Evidence, finding: Finding) -> dict[str, str]:
    facts: dict[str, str] = {}
    node = _node(evidence, finding)
    if node:
        facts["node"] = node
    step = read_progress(evidence.run.steps).step
    if step:
        facts["steps_made"] = str(step)
    return facts


def _node(evidence: Evidence, finding: Finding) -> str | None:
    """The node to blame, as Slurm calls it: that of a job on one node, else that of the rank that failed first."""
    nodes = finding.record.nodes if finding.record else None
    if nodes and "," not in nodes and "[" not in nodes:
        return nodes
    first = evidence.failures[0].get("host") if evidence.failures else None
    host = first or (evidence.exit or {}).get("host")
    return str(host).partition(".")[0] if host else nodes  # a host may give its full name, which Slurm does not know


def _failures(run: RunPaths) -> list[Found]:
    """The signs in the errors that the ranks recorded, with the time of each."""
    found = []
    for record in run.failure_records():
        rank = record["rank"]
        path = run.failure(rank)
        name = str(path.relative_to(run.root))
        text = f"{record.get('traceback') or ''}\n{record.get('type')}: {record.get('message')}\n"
        for one in signs_in(text.encode("utf-8", "replace")):
            one.file, one.line = name, _line_of(path, one.text)
            one.rank, one.time = rank, record["time"]
            found.append(one)
    return found


def _line_of(path: Path, text: str) -> int:
    """The line of a record that holds `text`, or of `TYPE: MESSAGE` the message; JSON may have quoted it. Else 1."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 1
    for part in (text, text.partition(": ")[2]):
        words = json.dumps(part, ensure_ascii=False)[1:-1][:60]
        for number, line in enumerate(lines, 1):
            if words and words in line:
                return number
    return 1


def _record(
    cause_id: str,
    file: str,
    text: str,
    *,
    confidence: float,
    precedence: int | None = None,
    line: int = 1,
    remedy: str | None = None,
) -> Found:
    """A finding that a record states, rather than a line of output."""
    says = sign(text, confidence=confidence, precedence=precedence, remedy=remedy)
    return Found(BY_ID[cause_id], says, text, position=-1, file=file, line=line)


def _exit(evidence: Evidence) -> list[Found]:
    """What the script's own record of its end says."""
    record: dict[str, Any] = evidence.exit or {}
    code = evidence.exit_code
    if not code:
        return []
    reason = str(record.get("reason") or "")
    text = f"exit code {code}, stage {record.get('stage')}" + (f": {reason}" if reason else "")
    if code in {stop.value for stop in Stop}:
        stop = Stop(code)
        cause = _STOP_CAUSES.get(stop) or ("module_missing" if "mpirun" in reason else "package_missing")
        return [_record(cause, "exit.json", text, confidence=0.99)]
    if code in _SIGNAL_CAUSES:
        cause, precedence = _SIGNAL_CAUSES[code]
        return [_record(cause, "exit.json", text, confidence=0.6, precedence=precedence)]
    return []


def _scheduler(evidence: Evidence, finding: Finding) -> list[Found]:
    """What tracking concluded from the scheduler's record, the script's record and the marks of hpc-llm itself."""
    verdict = finding.verdict
    cause = _OUTCOME_CAUSES.get(verdict.outcome) if verdict else None
    if verdict is None or cause is None:
        return []
    asked = " (requested with hpc-llm cancel)" if evidence.is_cancelled else ""
    text = f"{finding.state}: {verdict.reason or verdict.outcome.value}{asked}"
    file = "scheduler" if finding.record else "exit.json"
    said = _record(cause, file, text, confidence=0.97)
    said.time = math.inf  # a rank or a log that says the same says more
    return [said]


_INVALID = (
    ("finite number", "nan_loss", None),
    ("overflowed", "loss_scale_collapse", None),
    ("steps were measured", "config_error", "let it train longer: --steps N, with fewer of them in --warmup-steps"),
    ("ranks", "config_error", "see that the launcher starts as many ranks as the plan has: --set launcher=…"),
    ("it ran on", "gpu_missing", "ask for the GPU that was planned: --sbatch constraint=… or another --partition"),
)
"""Words of the reason why a measurement does not count, the cause they mean, and what to do about it."""


def _invalid(evidence: Evidence) -> list[Found]:
    """A run that ended and measured nothing that counts."""
    result = evidence.result or {}
    reason = str(result.get("invalid_reason") or "")
    if result.get("outcome") != Outcome.INVALID.value or not reason:
        return []
    cause, remedy = next(((c, r) for words, c, r in _INVALID if words in reason), ("config_error", None))
    return [
        _record(
            cause, "result.json", reason, confidence=0.95, line=_line_of(evidence.run.result, reason), remedy=remedy
        )
    ]
