"""Which figures follow from one another, whoever wrote them: a count is a rate times a duration, and no part is more than all.

Of figures that break a relation nobody knows which one is right, so all of them count as missing. A relation holds where a figure
is not there. Pure, standard library only.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hpc_llm.immutable import dataclass
from hpc_llm.records.metrics import is_figure

Figures = Mapping[str, Any]
Amount = Callable[[Figures], "float | None"]

LOGGED = "logged_"
"""Before the name of a figure: the same by the file of a run's steps, where that holds the steps that it is of."""
LOGGED_TIMES = f"{LOGGED}step_times_s"
"""Seconds of measured steps by their place among all of them."""
JOB_S = "job_s"
"""How long the script of the job took, by the record of its end."""
PEAK = "known_peak_tflops"
"""Of the GPU that a program means its utilisation of: what is known of it, dense, in TFLOP/s."""
LEAST_STEP_S = 5e-5
"""No step of any training takes less: it starts dozens of kernels, each of which takes a microsecond and more."""
_ROUNDED_S = 0.06
"""What rounding a printed duration may add or take away."""
ROUNDING = "_rounding"
"""Behind the name of a figure: how much it may be off for the digits that were left out when it was printed."""
_HUNDREDTH_OF_GIB = 0.01 * (1 << 30)
"""What two digits of GiB leave out."""
_SERVED = (
    "tokens_per_second", "tokens_per_second_per_gpu", "prompt_tokens_per_second", "generated_tokens_per_second",
    "queries_per_second",
)  # fmt: skip
_OF_STEPS = (
    "step_time_s_mean", "step_time_s_p50", "step_time_s_p90", "step_times_s", "tokens_per_second", "tokens_per_second_per_gpu",
    "model_tflops_per_gpu", "mfu", "epoch_time_s", "measured_window_s",
)  # fmt: skip


_LARGEST_EXPONENT = 709.0
"""Of which a double holds the exponential."""
_EVALUATED = ("eval_loss", "perplexity", "best_step", "best_eval_loss")
_OF_SIZE = ("num_parameters", "trainable_parameters", "flops_per_token", "model_tflops_per_gpu", "mfu")


def amount(*names: str, times: float = 1.0, plus: float = 0.0) -> Amount:
    """The product of figures; None where one is missing.

    >>> amount("a", "b", plus=1)({"a": 2, "b": 3}), amount("a")({})
    (7.0, None)
    """

    def of(figures: Figures) -> float | None:
        values = [figures.get(name) for name in names]
        if not all(map(is_figure, values)):
            return None
        return math.prod(map(float, values), start=times) + plus  # type: ignore[arg-type]

    return of


def half_unit(printed: str) -> float:
    """By how much a printed number may be off: half a unit of its last digit.

    >>> half_unit("0.03"), half_unit("21450"), half_unit("1.5e-05")
    (0.005, 0.5, 5e-07)
    """
    digits, _, power = printed.lower().partition("e")
    return 0.5 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def _perplexity(figures: Figures) -> float | None:
    loss = amount("eval_loss")(figures)
    if loss is None or loss < 0:
        return None
    return math.exp(loss) if loss < _LARGEST_EXPONENT else sys.float_info.max


def _one_evaluation(name: str) -> Amount:
    """That figure where there was a single evaluation, which then is the last and the best one."""
    return lambda figures: amount(name)(figures) if figures.get("evaluations_of_all") == 1 else None


@dataclass(frozen=True)
class Relation:
    """What is held to what, and which figures count as missing where it does not hold."""

    said: str
    left: Amount
    sign: str
    """`=`, or `<=`: at most."""
    right: Amount
    empty: tuple[str, ...]
    share: float = 0.02
    slack: Amount = amount(times=1e-6)
    """By how much it may be off besides that share."""

    def breach(self, figures: Figures) -> str | None:
        """What breaks it, in words."""
        left, right = self.left(figures), self.right(figures)
        if left is None or right is None:
            return None
        off = abs(left - right) if self.sign == "=" else left - right
        is_broken = off > self.share * abs(right) + (self.slack(figures) or 0.0)
        return f"{self.said}: {left:.7g} and {right:.7g}" if is_broken else None


def _served(rate: str, count: Amount, said: str) -> Relation:
    """A rate of a benchmark that prints its duration and what it counted."""
    duration, digits = amount(rate, times=_ROUNDED_S, plus=1.0), amount("elapsed_s", f"{rate}{ROUNDING}")
    left = amount(rate, "elapsed_s")
    return Relation(
        said, left, "=", count, _SERVED, slack=lambda figures: (duration(figures) or 0.0) + (digits(figures) or 0.0)
    )


def _all_tokens(figures: Figures) -> float | None:
    prompt, generated = amount("served_prompt_tokens")(figures), amount("served_generated_tokens")(figures)
    return prompt + generated if prompt is not None and generated is not None else None


_LATENCIES = (
    "latency_s_mean", "latency_s_p50", "latency_s_p90", "latency_s_p99", "time_to_first_token_s_p50", "time_per_output_token_s_mean",
)  # fmt: skip
_ABOVE_P99 = 0.01
"""The share of the answers that took longer than nearly all."""


def _at_most(one: str, other: str, empty: tuple[str, ...] = _LATENCIES) -> Relation:
    """Two latencies of the same answers of a benchmark, as rounded as its table has them."""
    return Relation(
        f"{one}, and {other}", amount(one), "<=", amount(other), empty, share=1e-3, slack=amount(times=1e-4)
    )


def _most_of_mean(name: str) -> Amount:
    """What a mean can be at most: the few answers above the 99th percentile took no longer than the benchmark."""

    def of(figures: Figures) -> float | None:
        nearly, longest, count = (
            amount(f"{name}_p99")(figures),
            amount("elapsed_s")(figures),
            amount("answered_requests")(figures),
        )
        if nearly is None or longest is None or not count:
            return None
        return nearly + (_ABOVE_P99 + 1 / count) * longest

    return of


def _latency_relations() -> tuple[Relation, ...]:
    """No percentile is below a lower one, no part of an answer takes longer than it, and none longer than the benchmark."""
    parts = ("time_to_first_token_s", "time_per_output_token_s", "latency_s")
    return (
        *(_at_most(f"latency_s_{one}", f"latency_s_{other}") for one, other in (("p50", "p90"), ("p90", "p99"), ("p50", "p99"))),
        *(_at_most(f"{part}_p50", f"{part}_p99", tuple(n for n in _LATENCIES if n.startswith(part))) for part in parts[:2]),
        *(_at_most(f"time_to_first_token_s_{which}", f"latency_s_{which}") for which in ("mean", "p50", "p99")),
        *(
            Relation(f"{part}_mean, and the most by its p99 and the duration", amount(f"{part}_mean"), "<=", _most_of_mean(part),
                     tuple(n for n in _LATENCIES if n.startswith(part)), slack=amount(times=1e-4))
            for part in parts
        ),
        *(
            Relation(f"{name}, and the duration", amount(name), "<=", amount("elapsed_s"), (name,), slack=amount(times=_ROUNDED_S))
            for name in _LATENCIES
        ),
    )  # fmt: skip


_NO_SHORTER_STEP = Relation(
    "seconds of the least step, and step_time_s_mean", amount(times=LEAST_STEP_S), "<=", amount("step_time_s_mean"), _OF_STEPS, slack=amount(times=0.0)
)  # fmt: skip


def _logged(name: str, empty: tuple[str, ...], share: float = 1e-3, slack: float = 1e-9, sign: str = "=") -> Relation:
    """A figure, and the same by steps.jsonl: one of the two may be rounded, as tables have it."""
    said, left, right = f"{name}, and that of steps.jsonl", amount(name), amount(f"{LOGGED}{name}")
    if sign == ">=":
        said, left, right, sign = f"{name.removesuffix('_of_all')} by steps.jsonl, and in the result", right, left, "<="
    return Relation(said, left, sign, right, empty, share=share, slack=amount(times=slack))


RELATIONS = (
    _served("requests_per_second", amount("answered_requests"), "requests/s by the duration, and requests"),
    _served("input_tokens_per_second", amount("served_prompt_tokens"), "input tokens/s by the duration, and input tokens"),
    _served("output_tokens_per_second", amount("served_generated_tokens"), "output tokens/s by the duration, and output tokens"),
    _served("tokens_per_second", _all_tokens, "tokens/s by the duration, and tokens"),
    *_latency_relations(),
    Relation("share of the memory, and all", amount("memory_share"), "<=", amount(times=1.0), ("peak_reserved_bytes",)),
    Relation(
        "TFLOP/s of the utilisation, by the GPU's dense peak, and those that are printed", amount("mfu", PEAK), "=", amount("model_tflops_per_gpu"),
        ("mfu",), share=0.1, slack=amount(PEAK, times=0.5e-4, plus=0.5e-2),  # both are printed with two digits, the first in %
    ),
    *(
        Relation(
            f"memory {kind} when it ran out, and the peak", amount(f"ran_out_{kind}_bytes"), "<=", amount(f"peak_{kind}_bytes"),
            ("peak_allocated_bytes", "peak_reserved_bytes"), slack=amount(times=_HUNDREDTH_OF_GIB),
        )
        for kind in ("allocated", "reserved")
    ),
    _NO_SHORTER_STEP,
    Relation(
        "seconds of steps, and between the clocks of their lines", amount("timer_s"), "<=", amount("stamps_s"), _OF_STEPS,
        share=0.05, slack=amount("timer_rounding_s", plus=2.0),
    ),
    Relation(
        "consumed samples, and steps by global batch", amount("consumed_samples"), "=", amount("steps_from_start", "step_batch"),
        ("global_batch_size", "tokens_per_second", "tokens_per_second_per_gpu"),
    ),
)  # fmt: skip
"""What a log prints."""

OF_ANY_RESULT = (
    _NO_SHORTER_STEP,
    *(_logged(name, _OF_STEPS) for name in ("step_time_s_mean", "step_time_s_p50", "step_time_s_p90", "tokens_per_second")),
    _logged("peak_allocated_bytes", ("peak_allocated_bytes",), sign=">="),
    Relation("seconds that were measured, and of the run", amount("measured_window_s"), "<=", amount("elapsed_s"), ("elapsed_s", "measured_window_s"), share=0.01),
    Relation("seconds of the run, and of its job", amount("elapsed_s"), "<=", amount(JOB_S), ("elapsed_s",), share=0.01, slack=amount(times=5.0)),
    Relation("peak_host_bytes, and the memory of the node", amount("peak_host_bytes"), "<=", amount("node_bytes"), ("peak_host_bytes",)),
    Relation(
        "peak_allocated_bytes, and peak_reserved_bytes", amount("peak_allocated_bytes"), "<=", amount("peak_reserved_bytes"),
        ("peak_allocated_bytes", "peak_reserved_bytes"),
    ),
    Relation(
        "trainable and all parameters", amount("trainable_parameters"), "<=", amount("num_parameters"), ("num_parameters", "trainable_parameters"), share=0.0
    ),
)  # fmt: skip
"""What the record of a run of any task holds."""

OF_A_TRAINING = (
    Relation(
        "seconds of steps, and of the run", amount("step_time_s_mean", "measured_steps"), "<=", amount("elapsed_s"), _OF_STEPS, slack=amount(times=1.0)
    ),
    Relation("perplexity, and the exponential of eval_loss", amount("perplexity"), "=", _perplexity, ("perplexity", "eval_loss")),
    *(_logged(name, ("loss_first", "loss_last"), share=1e-4, slack=6e-4) for name in ("loss_last", "loss_first")),
    Relation(
        "measured_steps, and the most by steps.jsonl", amount("measured_steps"), "<=", amount(f"{LOGGED}most_measured_steps"), ("measured_steps", *_OF_STEPS),
        share=0.0,
    ),
    _logged("trained_tokens", ("trained_tokens",), share=0.0),
    _logged("trained_tokens_of_all", ("trained_tokens",), share=0.0, sign=">="),
    Relation("bytes held on the host, and peak_host_bytes", amount("held_on_host"), "<=", amount("peak_host_bytes"), ("peak_host_bytes",)),
    # Weights in products cost 4 FLOPs and more, and an embedding has no tenfold of them; nor can they cost more than 6, and what attention
    # costs grows with the width of its layers, of which each has two matrices that are eight times as large and more.
    Relation("a tenth of num_parameters, and flops_per_token", amount("num_parameters", times=0.1), "<=", amount("flops_per_token"), _OF_SIZE),
    Relation("flops_per_token, and the most of num_parameters", amount("flops_per_token"), "<=", amount("num_parameters", "most_flops"), _OF_SIZE),
    Relation(
        "trained tokens, and those of the planned steps", amount("trained_tokens"), "<=", amount("planned_steps", "planned_tokens"), ("trained_tokens",), share=0.0
    ),
    Relation("the time of one sample, and of an epoch", amount("sample_s"), "<=", amount("epoch_time_s"), ("epoch_time_s",)),
    Relation("the time of planned steps, and of their epochs", amount("steps_s_but_one"), "<=", amount("epoch_time_s", "planned_epochs"), ("epoch_time_s",)),
    Relation("epoch_time_s by the planned epochs, and the time of their steps", amount("epoch_time_s", "planned_epochs"), "<=", amount("steps_s"), ("epoch_time_s",)),
    Relation("epoch_time_s of data without end, and none", amount("endless_epoch_s"), "<=", amount(times=0.0), ("epoch_time_s",)),
    Relation("evaluations, of which there is a loss", amount(times=1.0), "<=", amount("evaluations_of_loss"), ("eval_loss", "perplexity")),
    Relation("evaluations, of which there is a best one", amount(times=1.0), "<=", amount("evaluations_of_best"), ("best_step", "best_eval_loss")),
    Relation("perplexity, and that of no eval_loss", amount("lone_perplexity"), "<=", amount(times=0.0), ("perplexity",)),
    Relation("best_eval_loss, and eval_loss", amount("best_eval_loss"), "<=", amount("eval_loss"), _EVALUATED, share=1e-4),
    Relation("best_eval_loss, and eval_loss of the only evaluation", _one_evaluation("best_eval_loss"), "=", _one_evaluation("eval_loss"), _EVALUATED, share=1e-4),
    Relation("best_step, and the planned steps", amount("best_step"), "<=", amount("all_steps"), ("best_step", "best_eval_loss"), share=0.0),
    *(
        Relation(f"{name}, and that of evaluations.jsonl", amount(name), "=", amount(f"{LOGGED}{name}"), _EVALUATED, share=1e-3)
        for name in _EVALUATED
    ),
    Relation("bytes of num_parameters, and those that are held of them", amount("bytes_of_parameters"), "=", amount("held_of_parameters"), _OF_SIZE, share=0.01),
)  # fmt: skip
"""What the record of a training holds, beside its plan."""


def broken(figures: Figures, relations: tuple[Relation, ...] = RELATIONS) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What breaks a relation, in a clause, and the figures that count as missing for it."""
    for one in relations:
        said = one.breach(figures)
        if said is not None:
            yield said, one.empty
