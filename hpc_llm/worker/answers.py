"""What answering queries took: the formulas behind every figure of it. Standard library only.

`prompt_tokens_per_second` and `generated_tokens_per_second` are over the whole measured time, so that the two add up to
`prompt_and_generated_tokens_per_second`, which is what `tokens_per_second` of an inference run is. `prefill_…` and `decode_…` are
over the time of these passes alone: prompts until the first token, and the tokens behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpc_llm.records import metrics

if TYPE_CHECKING:  # a run that fails before torch is imported leaves a result too
    from hpc_llm.worker.measure.window import Window

_PERCENTS = (50, 90, 99)


@dataclass(frozen=True)
class AnsweredQuery:
    """One query."""

    number: int
    """Its place among all queries, from 0."""
    prompt_tokens: int
    generated_tokens: int
    """Its end included."""
    first_token_s: float
    """From the handing over of its batch to its first token."""
    latency_s: float
    """To its last one."""

    @property
    def time_per_output_token_s(self) -> float | None:
        """Mean time of the tokens behind the first; None where there is none."""
        behind = self.generated_tokens - 1
        return (self.latency_s - self.first_token_s) / behind if behind > 0 else None


@dataclass(frozen=True)
class AnsweredBatch:
    """One step: a batch of queries."""

    number: int
    """From 1."""
    warmup: bool
    time_s: float
    """Until all of its answers have ended."""
    first_token_s: float
    queries: tuple[AnsweredQuery, ...]
    """Without those that only fill it."""

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self.queries)

    @property
    def generated_tokens(self) -> int:
        return sum(one.generated_tokens for one in self.queries)


@dataclass
class Answers:
    """What this rank has measured, and at the end what all have."""

    window: Window
    """Around the measured batches."""
    batches: list[AnsweredBatch] = field(default_factory=list)
    """All of this rank, in order."""
    everyones: list[AnsweredBatch] | None = None
    """The measured ones of all ranks; None until they are gathered."""
    longest_s: float | None = None
    """Wall time of the measured batches on the rank that took longest."""
    decoding: str | None = None
    """How the pass of a token is carried out: `cuda graph` or `eager`."""
    held: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """While a batch is taken up and written down, and by whoever tells of them from another thread."""

    @property
    def steps_done(self) -> int:
        return self.batches[-1].number if self.batches else 0

    @property
    def measured(self) -> list[AnsweredBatch]:
        return [one for one in self.batches if not one.warmup]

    @property
    def measured_steps(self) -> int:
        return len(self.measured)

    def figures(self, world_size: int) -> dict[str, Any]:
        """The keys of result.json. Where several ranks answered and were not gathered nothing is known of all together."""
        batches = self.everyones if self.everyones is not None else self.measured if world_size == 1 else []
        total_s = self.longest_s if self.longest_s is not None else sum(one.time_s for one in batches) or None
        return {
            "measured_steps": self.measured_steps,
            "decoding": self.decoding,
            **_of_batches(batches),
            **_of_queries([query for batch in batches for query in batch.queries]),
            **_rates(batches, total_s, world_size),
        }


def _of_batches(batches: Sequence[AnsweredBatch]) -> dict[str, Any]:
    times = [one.time_s for one in batches]
    first = [one.first_token_s for one in batches]
    return {
        "step_time_s_mean": metrics.mean(times),
        "step_time_s_p50": metrics.percentile(times, 50),
        "step_time_s_p90": metrics.percentile(times, 90),
        "step_times_s": times,
        "prefill_time_s": sum(first) if batches else None,
        "decode_time_s": sum(times) - sum(first) if batches else None,
    }


def _of_queries(queries: Sequence[AnsweredQuery]) -> dict[str, Any]:
    return {
        "total_queries": len(queries) or None,
        **_spread("latency_s", [one.latency_s for one in queries]),
        **_spread("time_to_first_token_s", [one.first_token_s for one in queries]),
        **_spread("time_per_output_token_s", known(one.time_per_output_token_s for one in queries)),
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles."""
    found = {f"{name}_p{percent}": metrics.percentile(values, percent) for percent in _PERCENTS}
    return {f"{name}_mean": metrics.mean(values), **found}


def known(values: Iterable[float | None]) -> list[float]:
    """Those that are known."""
    return [value for value in values if value is not None]


def _rates(batches: Sequence[AnsweredBatch], total_s: float | None, world_size: int) -> dict[str, Any]:
    prompt, generated = (sum(getattr(one, name) for one in batches) for name in ("prompt_tokens", "generated_tokens"))
    queries = sum(len(one.queries) for one in batches)
    prefill_s = sum(one.first_token_s for one in batches) / world_size
    decode_s = sum(one.time_s - one.first_token_s for one in batches) / world_size
    both = _rate(prompt + generated, total_s)
    return {
        "total_time_s": total_s,
        "prompt_tokens": prompt or None,
        "generated_tokens": generated or None,
        "prompt_tokens_per_second": _rate(prompt, total_s),
        "generated_tokens_per_second": _rate(generated, total_s),
        "prompt_and_generated_tokens_per_second": both,
        "tokens_per_second": both,
        "tokens_per_second_per_gpu": None if both is None else both / world_size,
        "queries_per_second": _rate(queries, total_s),
        "prefill_tokens_per_second": _rate(prompt, prefill_s),
        "decode_tokens_per_second": _rate(generated - queries, decode_s),
    }


def _rate(count: int, seconds: float | None) -> float | None:
    return count / seconds if seconds and count > 0 else None
