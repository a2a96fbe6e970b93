"""MLPerf training logs (`:::MLLOG` and a JSON object), which NeMo and others print in submissions.

A line counts samples, not steps; with the global batch size that is a step where it divides. In the language model
benchmarks `eval_accuracy` is the evaluation loss.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import STOPS, Kind, Value, rule
from hpc_llm.text.json_text import figures

_LOSS_BENCHMARKS = ("llama2_70b_lora", "gpt3", "llama31_405b", "llama31_8b")
_OPENING = ("cache_clear", "init_start")
"""Keys with which a run begins."""
_FACTS = {
    "global_batch_size": "global_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_sequence_length": "sequence_length",
    "submission_benchmark": "benchmark",
}
_STATUSES = ("aborted", "failed", "failure", "error")
"""Of a run that stops without success; the rules of MLPerf know `aborted`."""
_MEASURES = {
    "throughput": "samples_per_second",
    "train_step_time": "step_time_s",
    "train_step_timing in s": "step_time_s",
}


def _record(match: re.Match[bytes]) -> dict[str, Any] | None:
    try:
        record = figures(match[1])
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _samples(record: Mapping[str, Any]) -> int | None:
    metadata = record.get("metadata")
    value = metadata.get("samples_count") if isinstance(metadata, dict) else None
    return value if isinstance(value, int) else None


def _loss(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The loss of a step."""
    record = _record(match) or {}
    value, samples = record.get("value"), _samples(record)
    if samples is None or not isinstance(value, (int, float)):
        return None
    found: dict[str, Value] = {"order": samples, "samples_seen": samples, "loss": float(value)}
    rate = record["metadata"].get("lr")
    if isinstance(rate, (int, float)):
        found["learning_rate"] = rate
    return found


def _measure(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """Throughput and step time since the line before."""
    value = (_record(match) or {}).get("value")
    if not isinstance(value, dict):
        return None
    return {column: float(value[key]) for key, column in _MEASURES.items() if isinstance(value.get(key), (int, float))}


def _fact(match: re.Match[bytes]) -> Mapping[str, Value]:
    record = _record(match) or {}
    name, value = _FACTS.get(str(record.get("key"))), record.get("value")
    return {name: value} if name is not None and isinstance(value, (int, float, str)) else {}


def _accuracy(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    value = (_record(match) or {}).get("value")
    return {"eval_accuracy": value} if isinstance(value, (int, float, str)) else None


def _begin(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    time = (_record(match) or {}).get("time_ms")
    if not isinstance(time, int) or not 0 < time < 1 << 42:
        return None
    stamp = datetime.datetime.fromtimestamp(time / 1000, datetime.timezone.utc)
    return {"run_start_ms": float(time), "run_started_at": stamp.isoformat(timespec="seconds")}


def _end(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    time = (_record(match) or {}).get("time_ms")
    return {"run_stop_ms": float(time)} if isinstance(time, int) and 0 < time < 1 << 42 else None


def _stop(match: re.Match[bytes]) -> Mapping[str, Value]:
    """A run that stops without success: its target was not reached, or it broke off."""
    metadata = (_record(match) or {}).get("metadata")
    status = metadata.get("status") if isinstance(metadata, dict) else None
    said = {STOPS: f"MLPerf's run_stop has the status {status}"} if status in _STATUSES else {}
    return {**(_end(match) or {}), **said}


def _finish(values: dict[str, Value]) -> None:
    begin, end = values.get("run_start_ms"), values.get("run_stop_ms")
    if isinstance(begin, float) and isinstance(end, float) and end > begin:
        values["elapsed_s"] = (end - begin) / 1000
    if "run_started_at" in values:
        values["started_at"] = values["run_started_at"]
    if values.get("benchmark") in _LOSS_BENCHMARKS and isinstance(values.get("eval_accuracy"), float):
        values["eval_loss"] = values["eval_accuracy"]


def _line(key: str, event: str = "", where: str = "") -> str:
    return rf':::MLLOG (\{{"namespace[^\n]{{0,200}}"event_type": "{event}[^\n]{{0,60}}"key": "{key}", {where}[^\n]{{0,2000}}\}})[ \t]*$'


_ABORTED = rf'[^\n]{{0,2000}}"status": "(?:{"|".join(_STATUSES)})"'


FORMAT = LineFormat(
    name="mlperf",
    hints=(b":::MLLOG {",),
    precedence=48,
    packed=True,
    rules=(
        rule(Kind.START, _line("run_start"), _begin, literal='"key": "run_start"'),
        rule(Kind.STEP, _line("train_loss"), _loss, literal='"key": "train_loss"'),
        rule(Kind.TICK, _line("tracked_stats"), _measure, literal='"key": "tracked_stats"'),
        rule(Kind.SETUP, _line("(?:" + "|".join((*_OPENING, *_FACTS)) + ")"), _fact, literal=":::MLLOG"),
        rule(Kind.RUN, _line("eval_accuracy"), _accuracy, literal='"key": "eval_accuracy"'),
        rule(Kind.END, _line("run_stop", where=f"(?!{_ABORTED})"), _end, literal='"key": "run_stop"'),
        rule(Kind.RUN, _line("run_stop", where=f"(?={_ABORTED})"), _stop, literal='"key": "run_stop"'),
    ),
    finish=_finish,
)
