"""vLLM benchmarks: serving, throughput, latency. Each block of results is a run of its own.

Tokens per second count prompt and output; older throughput benchmarks print the sum only, older
serving benchmarks the two parts, the first one no tokens at all. In the latency benchmark one
step is one batch from prompt to last token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rows import INFER
from hpc_llm.parsing.rules import Kind, Rule, Value, leave_empty, number, rule
from hpc_llm.records.relations import ROUNDING, half_unit

_THROUGHPUT = (
    r"Throughput: <requests_per_second> requests/s, <tokens_per_second> (?:total )?tokens/s"
    r"(?:, <output_tokens_per_second> output tokens/s)?"
)
_FEW = 0.01
"""So many failures for each answer change no rate by more than a machine does."""


_SERVING = {
    "requests_per_second": "queries_per_second",
    "input_tokens_per_second": "prompt_tokens_per_second",
    "output_tokens_per_second": "generated_tokens_per_second",
    "ttft_median_s": "time_to_first_token_s_p50",
    "tpot_mean_s": "time_per_output_token_s_mean",
    "e2e_mean_s": "latency_s_mean",
    "e2e_median_s": "latency_s_p50",
    "e2e_p90_s": "latency_s_p90",
    "e2e_p99_s": "latency_s_p99",
}
"""What the table of the serving benchmark prints -> the column that its JSON file fills, too."""
_LATENCIES = (
    ("Median TTFT (ms)", "<ttft_median_ms>"),
    ("Mean TPOT (ms)", "<tpot_mean_ms>"),
    ("Mean E2E", "<e2e_mean_ms>"),
    ("Median E2E", "<e2e_median_ms>"),
    ("P90 E2E", "<e2e_p90_ms>"),
    ("P99 E2E", "<e2e_p99_ms>"),
)


def _latency(name: str, value: str) -> Rule:
    """vLLM calls the time of a whole answer E2EL, SGLang E2E Latency."""
    words = rf"{name}(?:L| Latency) \(ms\)" if name.endswith("E2E") else name.replace("(", r"\(").replace(")", r"\)")
    return rule(Kind.RUN, rf"\b{words}: +{value}", literal=name)


def _printed(match: re.Match[bytes]) -> Mapping[str, Value]:
    """The rates of a line, and what their digits leave out: of 0.03 requests/s, a sixth."""
    texts = {name: text for name, text in match.groupdict().items() if text is not None}
    found = {name: value for name, text in texts.items() if (value := number(text)) is not None}
    return {
        **found,
        **{
            f"{name}{ROUNDING}": half_unit(texts[name].decode())
            for name, value in found.items()
            if math.isfinite(value)
        },
    }


def _with_rounding(values: dict[str, Value], name: str, one: str, other: str) -> None:
    """What rounding leaves open of a rate that is the sum of two, or their difference."""
    values[f"{name}{ROUNDING}"] = float(values.get(f"{one}{ROUNDING}", 0.0)) + float(
        values.get(f"{other}{ROUNDING}", 0.0)
    )


def _finish(values: dict[str, Value]) -> None:
    """Prompt and output tokens are counted over the same time."""
    prompt, output = values.get("input_tokens_per_second"), values.get("output_tokens_per_second")
    total = values.get("tokens_per_second")
    if isinstance(prompt, float) and isinstance(output, float):
        if "tokens_per_second" not in values:
            values["tokens_per_second"] = round(prompt + output, 6)
            _with_rounding(values, "tokens_per_second", "input_tokens_per_second", "output_tokens_per_second")
    elif isinstance(total, float) and isinstance(output, float) and total > output > 0:
        values["input_tokens_per_second"] = round(total - output, 6)
        _with_rounding(values, "input_tokens_per_second", "tokens_per_second", "output_tokens_per_second")
    for name, column in _SERVING.items():
        value = values.get(name)
        if isinstance(value, float) and value > 0:
            values[column] = value
    if values.get("retokenized_tokens") == 0 and not values.get("ttft_median_s"):
        said = "tokens/s and latencies: the answers held no text (0 tokens retokenized, no time to first token), the tokens are those that were asked for"
        leave_empty(values, said, " ".join(("tokens_per_second", *_SERVING.values())))
    failed, answered = values.get("failed_requests"), values.get("answered_requests")
    if isinstance(failed, float) and isinstance(answered, float) and failed > _FEW * answered:
        said = f"tokens/s and latencies: {failed:.0f} requests failed, and they are those of the {answered:.0f} that were answered"
        leave_empty(values, said, " ".join(("tokens_per_second", *_SERVING.values())))


FORMAT = LineFormat(
    name="vllm",
    hints=(b"Serving Benchmark Result", b" requests/s", b"% percentile latency: ", b"Avg latency: "),
    precedence=70,
    averages=False,
    rules=(
        rule(Kind.START, r"= Serving Benchmark Result =", literal="Serving Benchmark Result"),
        rule(Kind.END, r"Successful requests: +(?=0*[1-9])<answered_requests>", literal="Successful requests: "),
        rule(Kind.RUN, r"Successful requests: +0+$", literal="Successful requests: "),  # which is no good end
        rule(Kind.RUN, r"Failed requests: +<failed_requests>", literal="Failed requests: "),
        rule(
            Kind.RUN,
            r"Total generated tokens \(retokenized\): +<retokenized_tokens>",
            literal="(retokenized): ",
        ),
        rule(Kind.RUN, r"Total input tokens: +<served_prompt_tokens>", literal="Total input tokens: "),
        rule(Kind.RUN, r"Total generated tokens: +<served_generated_tokens>", literal="Total generated tokens: "),
        rule(Kind.RUN, r"Benchmark duration \(s\): +<elapsed_s>", literal="Benchmark duration (s)"),
        rule(
            Kind.RUN,
            r"Total (?:[Tt]oken )?throughput \(tok/s\): +<tokens_per_second>",
            _printed,
            literal="throughput (tok/s)",
        ),
        rule(
            Kind.RUN,
            r"\bRequest throughput \(req/s\): +<requests_per_second>",
            _printed,
            literal="Request throughput (req/s)",
        ),
        rule(Kind.RUN, r"\bPeak output token throughput \(tok/s\): ", literal="Peak output token throughput"),
        rule(
            Kind.RUN,
            r"\bInput token throughput \(tok/s\): +<input_tokens_per_second>",
            _printed,
            literal="Input token throughput (tok/s)",
        ),
        rule(
            Kind.RUN,
            r"\bOutput token throughput \(tok/s\): +<output_tokens_per_second>",
            _printed,
            literal="Output token throughput (tok/s)",
        ),
        *(_latency(name, value) for name, value in _LATENCIES),
        rule(Kind.START, r"Throughput: [\d.,]+ requests/s, ", literal=" requests/s, "),
        rule(Kind.END, _THROUGHPUT, literal=" requests/s, "),
        rule(Kind.START, r"^Total time: [\d.]+ s\nThroughput: [\d.]+ requests/s$", literal=" requests/s"),
        rule(
            Kind.END,
            r"^Total time: <elapsed_s> s\nThroughput: <requests_per_second> requests/s$",
            literal=" requests/s",
        ),
        rule(Kind.RUN, r"^Throughput: <requests_per_second> requests/s$", literal=" requests/s"),
        rule(Kind.START, r"Avg latency: [\d.]+ seconds", literal="Avg latency: "),
        rule(Kind.END, r"Avg latency: <step_time_s_mean> seconds", literal="Avg latency: "),
        rule(Kind.RUN, r"\b50% percentile latency: <step_time_s_p50> seconds", literal="% percentile latency: "),
        rule(Kind.RUN, r"\b90% percentile latency: <step_time_s_p90> seconds", literal="% percentile latency: "),
    ),
    kind=INFER,
    defaults={"task": "infer"},
    finish=_finish,
)
