"""The JSON files that vLLM's benchmarks write: serving, throughput, latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpc_llm.parsing.registry import DocumentFormat
from hpc_llm.parsing.rows import INFER, Row, Step
from hpc_llm.records.run import Outcome
from hpc_llm.text.json_text import figures

_KEYS = (("total_token_throughput", "duration"), ("tokens_per_second", "elapsed_time"), (None, "avg_latency"))


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
    if rate is not None:
        row.tokens_per_second, row.elapsed_s = float(found[rate]), float(found[time])
        return row
    row.step_time_s_mean = float(found[time])
    percentiles = found.get("percentiles")
    if isinstance(percentiles, dict):
        row.step_time_s_p50, row.step_time_s_p90 = (_number(percentiles.get(key)) for key in ("50", "90"))
    return row


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


FORMAT = DocumentFormat(
    name="vllm",
    hints=(
        (b'"total_token_throughput"', b'"duration"'),
        (b'"tokens_per_second"', b'"num_requests"'),
        (b'"avg_latency"',),
    ),
    read=read,
)
