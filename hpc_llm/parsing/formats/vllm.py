"""vLLM benchmarks: serving, throughput, latency. Each block of results is a run of its own.

Tokens per second count prompt and output; older throughput benchmarks print the sum only, older
serving benchmarks the two parts, the first one no tokens at all. In the latency benchmark one
step is one batch from prompt to last token.
"""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rows import INFER
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule

_THROUGHPUT = r"Throughput: [\d.,]+ requests/s, <tokens_per_second> (?:total )?tokens/s"
_FEW = 0.01
"""So many failures for each answer change no rate by more than a machine does."""


def _finish(values: dict[str, Value]) -> None:
    """Prompt and output tokens are counted over the same time."""
    prompt, output = values.get("input_tokens_per_second"), values.get("output_tokens_per_second")
    if isinstance(prompt, float) and isinstance(output, float):
        values.setdefault("tokens_per_second", round(prompt + output, 6))
    failed, answered = values.get("failed_requests"), values.get("answered_requests")
    if isinstance(failed, float) and isinstance(answered, float) and failed > _FEW * answered:
        said = f"tokens/s: {failed:.0f} requests failed, and it is that of the {answered:.0f} that were answered"
        leave_empty(values, said, "tokens_per_second")


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
        rule(Kind.RUN, r"Benchmark duration \(s\): +<elapsed_s>", literal="Benchmark duration (s)"),
        rule(
            Kind.RUN,
            r"Total (?:[Tt]oken )?throughput \(tok/s\): +<tokens_per_second>",
            literal="throughput (tok/s)",
        ),
        rule(
            Kind.RUN,
            r"\b(?:Request|Peak output token) throughput \((?:req|tok)/s\): ",
            literal=" throughput (",
        ),
        rule(
            Kind.RUN,
            r"\bInput token throughput \(tok/s\): +<input_tokens_per_second>",
            literal="Input token throughput (tok/s)",
        ),
        rule(
            Kind.RUN,
            r"\bOutput token throughput \(tok/s\): +<output_tokens_per_second>",
            literal="Output token throughput (tok/s)",
        ),
        rule(Kind.START, r"Throughput: [\d.,]+ requests/s, ", literal=" requests/s, "),
        rule(Kind.END, _THROUGHPUT, literal=" requests/s, "),
        rule(Kind.START, r"^Total time: [\d.]+ s\nThroughput: [\d.]+ requests/s$", literal=" requests/s"),
        rule(Kind.END, r"^Total time: <elapsed_s> s\nThroughput: [\d.]+ requests/s$", literal=" requests/s"),
        rule(Kind.RUN, r"^Throughput: [\d.]+ requests/s$", literal=" requests/s"),
        rule(Kind.START, r"Avg latency: [\d.]+ seconds", literal="Avg latency: "),
        rule(Kind.END, r"Avg latency: <step_time_s_mean> seconds", literal="Avg latency: "),
        rule(Kind.RUN, r"\b50% percentile latency: <step_time_s_p50> seconds", literal="% percentile latency: "),
        rule(Kind.RUN, r"\b90% percentile latency: <step_time_s_p90> seconds", literal="% percentile latency: "),
    ),
    kind=INFER,
    defaults={"task": "infer"},
    finish=_finish,
)
