"""The JSON files that vLLM's benchmarks write: serving, throughput, latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpc_llm.parsing.registry import DocumentFormat
from hpc_llm.parsing.rows import INFER, Row, Step
from hpc_llm.records.relations import ROUNDING, broken, half_unit
from hpc_llm.records.run import Outcome
from hpc_llm.text.json_text import figures

_KEYS = (("total_token_throughput", "duration"), ("tokens_per_second", "elapsed_time"), (None, "avg_latency"))

_MILLISECONDS = {
    "time_to_first_token_s_p50": "median_ttft_ms",
    "time_per_output_token_s_mean": "mean_tpot_ms",
    "latency_s_mean": "mean_e2el_ms",
    "latency_s_p50": "median_e2el_ms",
    "latency_s_p90": "p90_e2el_ms",
    "latency_s_p99": "p99_e2el_ms",
}
"""Columns of what the serving benchmark writes in ms; those of the whole latency only where it is asked for them."""


_BESIDE = {
    "time_to_first_token_s_mean": "mean_ttft_ms",
    "time_to_first_token_s_p99": "p99_ttft_ms",
    "time_per_output_token_s_p50": "median_tpot_ms",
    "time_per_output_token_s_p99": "p99_tpot_ms",
}
"""What has no column and is held against those that have one."""
_SERVED = {
    "requests_per_second": "request_throughput",
    "output_tokens_per_second": "output_throughput",
    "answered_requests": "completed",
    "served_prompt_tokens": "total_input_tokens",
    "served_generated_tokens": "total_output_tokens",
}
"""What follows from one another in the result of a serving benchmark."""
_FEW = 0.01
"""So many failures for each answer change no rate by more than a machine does."""


def read(text: bytes) -> Iterator[tuple[Row, list[Step]]]:
    """The result of one benchmark; raises ValueError where the file is none."""
    found = figures(text)
    if not isinstance(found, dict):
        raise ValueError("no object")
    for rate, time in _KEYS:
        if isinstance(found.get(time), (int, float)) and (rate is None or isinstance(found.get(rate), (int, float))):
            yield _row(found, rate, time), []
            return
    raise ValueError("none of the keys of a benchmark")


def _row(found: dict[str, Any], rate: str | None, time: str) -> Row:
    row = Row(format="vllm", task="infer", kind=INFER, outcome=Outcome.COMPLETED.value)
    row.model = found.get("model_id") if isinstance(found.get("model_id"), str) else None
    if rate is None:
        _fill_latency(row, found)
        return row
    if (reason := _unanswered(found)) is not None:
        row.elapsed_s, row.outcome_reason = float(found[time]), reason
        if found["completed"] == 0:
            row.outcome = Outcome.UNKNOWN.value
        return row
    row.tokens_per_second, row.elapsed_s = float(found[rate]), float(found[time])
    row.queries_per_second = _number(found.get("request_throughput", found.get("requests_per_second")))
    row.generated_tokens_per_second = _number(found.get("output_throughput"))
    if row.generated_tokens_per_second is not None:  # both are over the same time
        row.prompt_tokens_per_second = _number(row.tokens_per_second - row.generated_tokens_per_second)
    for column, key in _MILLISECONDS.items():
        setattr(row, column, _seconds(found, key))
    served = {name: found.get(key) for name, key in _SERVED.items()}
    _leave_out_contradictions(row, {**served, **{name: _seconds(found, key) for name, key in _BESIDE.items()}})
    return row


def _leave_out_contradictions(row: Row, beside: dict[str, Any]) -> None:
    """Of figures that contradict each other, or one of those `beside`, none is kept."""
    columns = ("elapsed_s", "tokens_per_second", *_MILLISECONDS)
    figures = {**beside, **{name: getattr(row, name) for name in columns}}
    rounded = {
        f"{name}{ROUNDING}": half_unit(repr(value)) for name, value in figures.items() if _number(value) is not None
    }
    told = list(broken({**figures, **rounded}))
    if told:
        row.outcome_reason = f"figures that contradict each other: {told[0][0]}"
    for _, names in told:
        for name in names:
            setattr(row, name, None)


def _seconds(found: dict[str, Any], key: str) -> float | None:
    value = _number(found.get(key))
    return None if value is None else value / 1000


def _unanswered(found: dict[str, Any]) -> str | None:
    """Why the figures are those of few answers only; None where all requests were answered, or nearly, or the file does not say.

    Files of before 2025 say no more than how many requests were asked for.
    """
    answered, failed, asked = (found.get(key) for key in ("completed", "failed", "num_prompts"))
    if not isinstance(answered, int):
        return None
    if isinstance(failed, int):
        missing, said = failed, f"{failed} requests failed"
    else:
        missing = asked - answered if isinstance(asked, int) else 0
        said = f"{missing} of {asked} requests have no answer"
    if answered == 0:
        return "no request was answered"
    return f"{said}: figures of the {answered} that were answered are left empty" if missing > _FEW * answered else None


def _fill_latency(row: Row, found: dict[str, Any]) -> None:
    """All queries of a batch take as long as it: their answers have one length."""
    row.latency_s_mean = float(found["avg_latency"])
    percentiles = found.get("percentiles")
    if isinstance(percentiles, dict):
        row.latency_s_p50, row.latency_s_p90, row.latency_s_p99 = (
            _number(percentiles.get(p)) for p in ("50", "90", "99")
        )
    _leave_out_contradictions(row, {})
    row.step_time_s_mean = row.latency_s_mean
    row.step_time_s_p50, row.step_time_s_p90 = row.latency_s_p50, row.latency_s_p90


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


FORMAT = DocumentFormat(
    name="vllm",
    hints=(
        (b'"total_token_throughput"', b'"duration"'),
        (b'"tokens_per_second"', b'"num_requests"'),
        (b'"avg_latency"',),
    ),
    read=read,
)
