"""Our own runs: a folder with experiment.json, and what of steps.jsonl, result.json and exit.json was written in time.

What the worker measured counts. Where it could not write its result any more, the means come from the steps that it
appended, and the way it ended from the exit record and the messages in its output.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_llm import metrics
from hpc_llm.causes import scheduler
from hpc_llm.causes.node import DISK_FULL
from hpc_llm.causes.search import Found, signs_in
from hpc_llm.causes.tries import since, taken_down
from hpc_llm.causes.verdict import Verdict, decide
from hpc_llm.parse.registry import FolderFormat
from hpc_llm.parse.rows import COLUMNS, STEP_COLUMNS, Row, Step
from hpc_llm.run import Outcome, RunPaths, Stop, is_run, read_json, read_json_lines
from hpc_llm.text import sources

NAME = "hpc-llm"
_TEXTS = frozenset(field.name for field in dataclasses.fields(Row) if "str" in str(field.type))
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)
_PLANNED = (
    "cluster", "method", "task", "model", "nodes", "gpus_per_node", "world_size", "micro_batch_size",
    "gradient_accumulation_steps", "global_batch_size", "sequence_length", "precision", "warmup_steps",
)  # fmt: skip
_LAUNCH = re.compile(rb"hpc-llm: [^,\s]+, [^\n]+, modules ")
"""What the job script prints when it starts to train."""
_TAIL = 1 << 20
"""Bytes at the end of the output that are searched for messages."""


def read(folder: Path) -> tuple[Row, Iterator[Step]]:
    """The row and the steps of the run in `folder`."""
    paths = RunPaths(folder)
    experiment = read_json(paths.experiment) or {}
    result, left = read_json(paths.result) or {}, read_json(paths.exit) or {}
    plan = experiment.get("plan")
    columns: dict[str, Any] = {
        "run_id": str(experiment.get("run_id") or paths.run_id),
        "source": str(folder),
        "format": NAME,
    }
    if isinstance(plan, dict):
        columns |= _columns_in({name: plan.get(name) for name in _PLANNED})
    columns |= _columns_in(result) if result else _from_steps(paths, columns)
    columns["job_id"] = _job_id(paths, left)
    columns["started_at"] = _iso(result.get("started_at")) or _iso(left.get("started_at"))
    if columns.get("elapsed_s") is None:
        columns["elapsed_s"] = _elapsed(left)
    columns |= _end(paths, result, left)
    return Row(**{name: value for name, value in columns.items() if name in COLUMNS}), _steps(paths, columns)


def _columns_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a record holds; what is of a wrong type, because somebody edited it, counts as missing."""
    return {n: v for n, v in record.items() if n in COLUMNS and isinstance(v, str if n in _TEXTS else (int, float))}


def _steps(paths: RunPaths, columns: Mapping[str, Any]) -> Iterator[Step]:
    for record in read_json_lines(paths.steps):
        known = {name: record.get(name) for name in STEP_COLUMNS}
        yield Step(**{**known, "run_id": columns["run_id"], "source": columns["source"]})


def _from_steps(paths: RunPaths, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The summary that the worker could not write any more."""
    records = [r for r in read_json_lines(paths.steps) if isinstance(r.get("step"), int)]
    if not records:
        return {}
    losses = [r["loss"] for r in records if isinstance(r.get("loss"), (int, float))]
    peaks = [r["peak_allocated_bytes"] for r in records if isinstance(r.get("peak_allocated_bytes"), int)]
    times = [
        r["step_time_s"] for r in records if not r.get("warmup") and isinstance(r.get("step_time_s"), (int, float))
    ]
    found: dict[str, Any] = {
        "loss_first": losses[0] if losses else None,
        "loss_last": losses[-1] if losses else None,
        "peak_allocated_bytes": max(peaks, default=None),
        "measured_steps": len(times) or None,
        "step_time_s_mean": metrics.mean(times),
        "step_time_s_p50": metrics.percentile(times, 50),
        "step_time_s_p90": metrics.percentile(times, 90),
    }
    batch, length, ranks = (columns.get(n) for n in ("global_batch_size", "sequence_length", "world_size"))
    if batch and length and times:
        found["tokens_per_second"] = metrics.tokens_per_second(batch * length, times)
        found["tokens_per_second_per_gpu"] = found["tokens_per_second"] / ranks if ranks else None
    return found


def _job_id(paths: RunPaths, left: Mapping[str, Any]) -> str | None:
    submitted = read_json(paths.job) or read_json(paths.submission) or {}
    job, task = submitted.get("job_id") or left.get("job_id"), left.get("array_task")
    if job is None:
        return None
    return f"{job}_{task}" if task is not None and "_" not in str(job) else str(job)


def _iso(time: object) -> str | None:
    """ISO 8601 of a time in seconds since 1970, or of a text that is one already."""
    if isinstance(time, str):
        return time or None
    if not isinstance(time, (int, float)) or isinstance(time, bool):
        return None
    try:
        return datetime.datetime.fromtimestamp(time, datetime.timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def _elapsed(left: Mapping[str, Any]) -> float | None:
    begin, end = left.get("started_at"), left.get("ended_at")
    return float(end - begin) if isinstance(begin, (int, float)) and isinstance(end, (int, float)) else None


def _end(paths: RunPaths, result: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    """Outcome and its reason: what Slurm once answered, its messages, the worker, the exit record, in this order."""
    kept = _kept_answer(paths)
    if kept:
        return kept
    measured = _outcome_in(result)
    if left and measured.get("outcome") == Outcome.COMPLETED.value:
        return measured
    messages = _messages(paths, left)
    said = decide(messages, completed=False)
    if not left and _began(paths) > max(1, taken_down(messages)):
        return {"outcome": Outcome.UNKNOWN.value, "outcome_reason": "it was started again: running, or killed"}
    if said.is_sure and said.cause in scheduler.CAUSES and measured.get("outcome") != Outcome.COMPLETED.value:
        return _as_columns(said)
    if measured.get("outcome", Outcome.UNKNOWN.value) != Outcome.UNKNOWN.value:
        return measured
    if paths.cancelled.exists():
        return {"outcome": Outcome.CANCELLED.value, "outcome_reason": "cancelled by the user"}
    if left:
        return _from_exit(left, said)
    if measured:
        return measured
    if said.is_sure and said.cause is DISK_FULL:  # which is why it left no record
        return _as_columns(said)
    return {"outcome": Outcome.UNKNOWN.value, "outcome_reason": "no result and no exit record: running, or killed"}


def _kept_answer(paths: RunPaths) -> dict[str, Any]:
    """What `hpc-llm status` learned from Slurm when the run was over."""
    kept = read_json(paths.kept_answer) or {}
    found = _outcome_in({**kept, "outcome_reason": kept.get("reason")})
    if found.get("outcome") == Outcome.CANCELLED.value:
        found["outcome_reason"] = found["outcome_reason"] or "cancelled by the user"
    return found


def _outcome_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome that a record names, with its reason; nothing where it names none."""
    outcome, reason = record.get("outcome"), record.get("outcome_reason")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        return {}
    return {"outcome": outcome, "outcome_reason": reason if isinstance(reason, str) else None}


def _began(paths: RunPaths) -> int:
    """How many times the job script began to train: a job that is queued again writes on in the same output."""
    try:
        with paths.stdout.open("rb") as file:
            return sum(_LAUNCH.match(line) is not None for line in file)
    except OSError:
        return 0


def _as_columns(said: Verdict) -> dict[str, Any]:
    return {"outcome": said.outcome.value, "outcome_reason": said.reason}


def _from_exit(left: Mapping[str, Any], said: Verdict) -> dict[str, Any]:
    code, limit, elapsed = left.get("exit_code"), left.get("time_limit_s"), _elapsed(left)
    if left.get("signal") and limit and elapsed is not None and elapsed >= limit:
        return {"outcome": Outcome.TIMEOUT.value, "outcome_reason": f"stopped at the time limit of {limit} s"}
    if left.get("signal"):
        return {"outcome": Outcome.CANCELLED.value, "outcome_reason": f"stopped by SIG{left['signal']}"}
    if said.root is not None:
        return _as_columns(said)
    if code == 0:
        return {"outcome": Outcome.UNKNOWN.value, "outcome_reason": "the job ended well and left no result"}
    meaning = Stop(code).meaning if code in set(Stop) else None
    reason = left.get("reason") or meaning or f"exit code {code}"
    return {"outcome": Outcome.FAILED.value, "outcome_reason": reason}


def _messages(paths: RunPaths, left: Mapping[str, Any]) -> list[Found]:
    """What the output says, without the tries before the last one."""
    began = left.get("started_at") if left.get("restart_count") else None
    found: list[Found] = []
    for path in (paths.stdout, paths.stderr):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL))
                here = signs_in(sources.clean(file.read()))
        except OSError:
            continue
        for one in here:
            one.file = path.name
        found += since(began, here) if isinstance(began, (int, float)) else here
    return found


FORMAT = FolderFormat(name=NAME, is_in=is_run, read=read)
