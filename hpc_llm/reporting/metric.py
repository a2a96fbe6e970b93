"""The figures of the report: where they are in a row, how they are called, in which unit they are shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One column of figures."""

    name: str
    """Its column in a row, in SI units or bytes."""
    title: str
    unit: str
    """As it is shown; empty where it has none."""
    meaning: str
    better: str | None
    """`high` or `low`; None where neither is."""
    shown_as: float = 1.0
    """What a value is divided by to be in `unit`."""
    digits: int = 4
    """Significant digits that are shown; whole numbers are not rounded further."""
    of_repeats: str = "mean"
    """`mean`, or `max` for a peak."""

    @property
    def header(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def interval(self) -> str:
        """The column that holds half the width of its confidence interval."""
        return f"{self.name}_ci95"

    @property
    def ends(self) -> str:
        """The cell that holds the values of two repeats, which are shown in place of an interval."""
        return f"{self.name}_ends"

    def shown(self, value: float | None) -> float | None:
        """`value` in the unit of the table."""
        return None if value is None or not math.isfinite(value) else value / self.shown_as

    def text(self, value: float | None) -> str:
        """`value` in the unit of the table, empty where it is unknown.

        >>> PEAK_ALLOCATED.text(5 * GIB / 4)
        '1.250'
        """
        shown = self.shown(value)
        return "" if shown is None else f"{shown:,.{self.decimals(shown)}f}"

    def decimals(self, shown: float) -> int:
        """Digits after the point for a value of this size."""
        if shown == 0:
            return 0
        return max(0, self.digits - 1 - math.floor(math.log10(abs(shown))))

    def spread(self, value: float | None, half_width: float | None, ends: tuple[float, float] | None = None) -> str:
        """`± 5.6`, to the place of the value; of two repeats both values."""
        width, shown = self.shown(half_width), self.shown(value)
        if ends is not None:
            return f"({self.text(ends[0])} to {self.text(ends[1])})"
        return "" if width is None or shown is None else f"± {width:,.{self.decimals(shown)}f}"

    def text_with_interval(
        self, value: float | None, half_width: float | None, ends: tuple[float, float] | None = None
    ) -> str:
        """`123.4 ± 5.6`, or of two repeats `123.4 (120.1 to 126.7)`."""
        text = self.text(value)
        return f"{text} {self.spread(value, half_width, ends)}".rstrip() if text else ""


TOKENS = Metric(
    name="tokens_per_second", title="Tokens/s", unit="", better="high",
    meaning="all GPUs together. Of a training run of hpc-llm ranks × micro batch × accumulation × sequence length over the mean "
    "measured step time; of a log of another program what it prints, or what follows from its step time; of inference what "
    "the benchmark counts. Training and inference stand in sections of their own",
)  # fmt: skip
TOKENS_PER_GPU = Metric(
    name="tokens_per_second_per_gpu",
    title="Tokens/s/GPU",
    unit="",
    better="high",
    meaning="tokens/s over the number of ranks",
)
MFU = Metric(
    name="mfu", title="MFU", unit="%", better="high", shown_as=0.01, digits=3,
    meaning="model FLOPs used, of the GPU's dense peak at the run's precision (at fp8 with +fp8); recomputed activations do not count. Of a log of "
    "another program as it prints it",
)  # fmt: skip
PEAK_ALLOCATED = Metric(
    name="peak_allocated_bytes", title="Peak allocated", unit="GiB", better="low", shown_as=GIB, of_repeats="max",
    meaning="most device memory in tensors, the largest of all ranks and repeats",
)  # fmt: skip
PEAK_RESERVED = Metric(
    name="peak_reserved_bytes", title="Peak reserved", unit="GiB", better="low", shown_as=GIB, of_repeats="max",
    meaning="most device memory held by the framework's allocator, the largest of all ranks and repeats",
)  # fmt: skip
PEAK_DEVICE = Metric(
    name="peak_device_bytes", title="Peak device", unit="GiB", better="low", shown_as=GIB, of_repeats="max",
    meaning="most memory in use on a device as its driver counts it, the largest of all ranks and repeats",
)  # fmt: skip
PEAK_HOST = Metric(
    name="peak_host_bytes", title="Peak host", unit="GiB", better="low", shown_as=GIB, of_repeats="max",
    meaning="most host memory of a rank, the largest of all ranks and repeats",
)  # fmt: skip
STEP_P50 = Metric(
    name="step_time_s_p50",
    title="Step p50",
    unit="s",
    better="low",
    meaning="half of the measured steps took no longer; of inference, half of the batches from prompt to last token",
)
STEP_P90 = Metric(
    name="step_time_s_p90",
    title="Step p90",
    unit="s",
    better="low",
    meaning="nine of ten measured steps took no longer; of inference, nine of ten batches",
)
STEP_PREDICTED = Metric(
    name="predicted_step_time_s", title="Step predicted", unit="s", better=None, of_repeats="max",
    meaning="what was expected of a step when the run was submitted, to stand beside what was measured",
)  # fmt: skip
PEAK_PREDICTED = Metric(
    name="predicted_peak_allocated_bytes", title="Peak predicted", unit="GiB", better=None, shown_as=GIB, of_repeats="max",
    meaning="what was expected of the device memory in tensors when the run was submitted",
)  # fmt: skip
LOSS = Metric(
    name="loss_last", title="Last loss", unit="", better="low",
    meaning="loss of the last step; the best is marked only where all ran equally many steps",
)  # fmt: skip
EVAL_LOSS = Metric(
    name="eval_loss", title="Held-out loss", unit="", better="low",
    meaning="mean loss of what was held out at the end, nats a token; the best is marked only where all ran equally many steps",
)  # fmt: skip
PERPLEXITY = Metric(
    name="perplexity", title="Perplexity", unit="", better="low",
    meaning="of what was held out at the end; the best is marked only where all ran equally many steps",
)  # fmt: skip
OF_EQUAL_STEPS = (LOSS, EVAL_LOSS, PERPLEXITY)
"""What is the better the longer a run trains."""
GENERATED = Metric(
    name="generated_tokens_per_second", title="Generated tokens/s", unit="", better="high",
    meaning="of inference, generated tokens of all GPUs over the whole measured time; tokens/s counts the prompts too",
)  # fmt: skip
QUERIES = Metric(
    name="queries_per_second", title="Queries/s", unit="", better="high",
    meaning="of inference, answered queries of all GPUs over the whole measured time",
)  # fmt: skip
FIRST_TOKEN = Metric(
    name="time_to_first_token_s_p50", title="First token p50", unit="s", better="low",
    meaning="of inference, half of the queries got their first token no later",
)  # fmt: skip
TOKEN_TIME = Metric(
    name="time_per_output_token_s_mean", title="Time per token", unit="ms", better="low", shown_as=0.001,
    meaning="of inference, the mean time of a query's tokens behind its first, the mean over queries",
)  # fmt: skip
LATENCY_MEAN = Metric(
    name="latency_s_mean", title="Latency", unit="s", better="low",
    meaning="of inference, mean time from handing over a query to its last token",
)  # fmt: skip
LATENCY_P99 = Metric(
    name="latency_s_p99", title="Latency p99", unit="s", better="low",
    meaning="of inference, 99 of 100 queries took no longer",
)  # fmt: skip

METRICS = (
    TOKENS, TOKENS_PER_GPU, MFU, PEAK_ALLOCATED, PEAK_RESERVED, PEAK_DEVICE, PEAK_PREDICTED, PEAK_HOST, STEP_P50, STEP_P90,
    STEP_PREDICTED, GENERATED, QUERIES, FIRST_TOKEN, TOKEN_TIME, LATENCY_MEAN, LATENCY_P99, LOSS,
    EVAL_LOSS, PERPLEXITY,
)  # fmt: skip
