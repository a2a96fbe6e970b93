"""Whether the figures of a run that answered queries agree with one another, with its plan and with its batches. Pure, standard library only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpc_llm.records import metrics
from hpc_llm.records.comparing import RATES, TOLERANCE, Contradiction, agrees, count_of, is_time
from hpc_llm.records.possible import figure_of
from hpc_llm.records.relations import LOGGED, Amount, Relation, amount, broken

_PERCENTS = (50, 90, 99)
_SPREAD = ("mean", *(f"p{percent}" for percent in _PERCENTS))
_LATENCY, _FIRST, _EACH = "latency_s", "time_to_first_token_s", "time_per_output_token_s"
LATENCIES = tuple(f"{name}_{part}" for name in (_LATENCY, _FIRST, _EACH) for part in _SPREAD)
_OF_TRAINING = (
    "loss_first", "loss_last", "eval_loss", "perplexity", "best_step", "best_eval_loss", "trained_tokens", "epoch_time_s",
    "model_tflops_per_gpu", "mfu", "trainable_parameters",
)  # fmt: skip
COUNTS = ("total_queries", "prompt_tokens", "generated_tokens")
SERVED = (
    *RATES, *COUNTS, "total_time_s", "prefill_time_s", "decode_time_s", "prefill_tokens_per_second", "decode_tokens_per_second",
    "prompt_and_generated_tokens_per_second",
)  # fmt: skip
"""All that follows from how many tokens came in which time."""
FIRST_TIMES = f"{LOGGED}first_times_s"
"""Seconds to the first token of each measured query, by the file of a run's steps."""


def of_answers(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """What in the result of a run that answered queries contradicts itself or the plan by its short names."""
    times = _times(result)
    learned = tuple(name for name in _OF_TRAINING if result.get(name))
    if learned:
        yield f"queries were answered, and the result has {learned[0]} of a training", learned
    yield from _of_times(plan, result)
    yield from broken({**result, **_beside(plan, result, times)}, _RELATIONS)
    yield from _of_latencies(plan, result, times)


def _times(result: Mapping[str, Any]) -> list[float]:
    given = result.get("step_times_s")
    return given if isinstance(given, list) and all(map(is_time, given)) else []


def _is_vllm(plan: Mapping[str, Any]) -> bool:
    """One process, which has all GPUs of its node and measures batches alone."""
    return plan.get("engine") == "vllm"


def _of_times(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """The times of the batches of all ranks, what is said of them all, and how many this rank had."""
    given, times = result.get("step_times_s"), _times(result)
    measured, ranks = count_of(result, "measured_steps"), count_of(result, "world_size") or 1
    if isinstance(given, list) and len(given) != len(times):
        yield "step_times_s holds what is no time of a batch", SERVED
    elif times and measured is not None and not measured <= len(times) <= measured * ranks:
        yield f"measured_steps is {measured} on {ranks} ranks and step_times_s holds {len(times)}", SERVED
    for part, right in _spread(times).items():
        said = figure_of(result, f"step_time_s_{part}")
        if said is not None and right is not None and not agrees(said, right):
            yield f"step_time_s_{part} is {said:g}, and that of step_times_s {right:g}", SERVED
    planned, warm = count_of(plan, "steps"), count_of(plan, "warmup_steps")
    if measured is None or planned is None or result.get("outcome") == "INVALID":
        return
    most = max(planned - (warm or 0), 0)
    is_short = result.get("outcome") == "COMPLETED" and warm is not None and measured < most
    if measured > most or is_short:
        yield f"{measured} batches were measured, {most} were planned", SERVED


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean and percentiles."""
    return {
        "mean": metrics.mean(values),
        **{f"p{percent}": metrics.percentile(values, percent) for percent in _PERCENTS},
    }


def _beside(plan: Mapping[str, Any], result: Mapping[str, Any], times: Sequence[float]) -> dict[str, Any]:
    """What the figures are held to, and follows from the plan and the times of the batches."""
    ranks, queries = count_of(result, "world_size") or 1, count_of(result, "total_queries")
    gpus, is_whole = max(count_of(plan, "gpus_per_node") or 1, 1), result.get("outcome") == "COMPLETED"
    new, length = count_of(plan, "new_tokens"), count_of(plan, "sequence_length")
    has_own_window = is_whole and ranks == 1 and not _is_vllm(plan)
    prompt = count_of(plan, "prompt_tokens")
    longest = prompt or (length - new if length is not None and new is not None else None)
    return {
        "gpus": gpus if _is_vllm(plan) else ranks,
        "ranks": ranks,
        "batches_s": sum(times) or None,
        "own_window_s": result.get("measured_window_s") if has_own_window else None,
        "own_elapsed_s": result.get("elapsed_s") if not _is_vllm(plan) else None,  # its times are by its own clock
        "planned_queries": count_of(plan, "queries"),
        "queries_of_all": queries if is_whole else None,
        "queries_at_least": count_of(plan, "queries") if is_whole else None,
        "most_generated": queries * new if queries and new else None,
        "least_generated": queries * (new if plan.get("stop_at_end") is False else 1) if queries and new else None,
        "most_prompt": queries * longest if queries and longest else None,
        "least_prompt": queries * (prompt or 1) if queries else None,
        "longest_s": max(times, default=None),
    }


def _together(figures: Mapping[str, Any]) -> float | None:
    prompt, generated = amount("prompt_tokens")(figures), amount("generated_tokens")(figures)
    return None if prompt is None or generated is None else prompt + generated


def _behind_the_first(figures: Mapping[str, Any]) -> float | None:
    generated, queries, ranks = (amount(name)(figures) for name in ("generated_tokens", "total_queries", "ranks"))
    return None if generated is None or queries is None or ranks is None else (generated - queries) * ranks


def _both_times(figures: Mapping[str, Any]) -> float | None:
    prefill, decode = amount("prefill_time_s")(figures), amount("decode_time_s")(figures)
    return None if prefill is None or decode is None else prefill + decode


def _equal(said: str, left: Amount, right: Amount) -> Relation:
    return Relation(said, left, "=", right, SERVED, share=TOLERANCE)


def _most(said: str, left: Amount, right: Amount, empty: tuple[str, ...] = SERVED) -> Relation:
    return Relation(said, left, "<=", right, empty, share=TOLERANCE)


def _counted(said: str, left: Amount, right: Amount, sign: str = "<=") -> Relation:
    """Of whole numbers, which nobody rounds."""
    return Relation(said, left, sign, right, SERVED, share=0.0)


_RELATIONS = (
    _equal("tokens_per_second by the time, and tokens", amount("tokens_per_second", "total_time_s"), _together),
    _equal("prompt and generated tokens/s by the time, and tokens", amount("prompt_and_generated_tokens_per_second", "total_time_s"), _together),
    _equal("prompt_tokens_per_second by the time, and prompt tokens", amount("prompt_tokens_per_second", "total_time_s"), amount("prompt_tokens")),
    _equal("generated_tokens_per_second by the time, and generated tokens", amount("generated_tokens_per_second", "total_time_s"), amount("generated_tokens")),
    _equal("queries_per_second by the time, and queries", amount("queries_per_second", "total_time_s"), amount("total_queries")),
    _equal("tokens_per_second_per_gpu of all GPUs, and tokens_per_second", amount("tokens_per_second_per_gpu", "gpus"), amount("tokens_per_second")),
    _equal("prefill_tokens_per_second by its time, and prompt tokens", amount("prefill_tokens_per_second", "prefill_time_s"), amount("prompt_tokens", "ranks")),
    _equal("decode_tokens_per_second by its time, and tokens behind the first", amount("decode_tokens_per_second", "decode_time_s"), _behind_the_first),
    _equal("prefill_time_s and decode_time_s, and the times of all batches", _both_times, amount("batches_s")),
    _equal("total_time_s, and measured_window_s", amount("total_time_s"), amount("own_window_s")),
    _most("measured_window_s, and total_time_s", amount("measured_window_s"), amount("total_time_s")),
    _most("the times of all batches, and total_time_s of all ranks", amount("batches_s"), amount("total_time_s", "ranks")),
    _most("total_time_s, and seconds of the run", amount("total_time_s"), amount("own_elapsed_s")),
    _counted("total_queries, and those that were planned", amount("total_queries"), amount("planned_queries")),
    _counted("planned queries, and total_queries", amount("queries_at_least"), amount("queries_of_all")),
    _counted("generated_tokens, and the most of all queries", amount("generated_tokens"), amount("most_generated")),
    _counted("the least tokens of all queries, and generated_tokens", amount("least_generated"), amount("generated_tokens")),
    _counted("prompt_tokens, and the most of all queries", amount("prompt_tokens"), amount("most_prompt")),
    _counted("the least tokens of all prompts, and prompt_tokens", amount("least_prompt"), amount("prompt_tokens")),
    *(_counted(f"{name}, and that of steps.jsonl", amount(name), amount(f"{LOGGED}{name}"), "=") for name in COUNTS),
    *(_most(f"{name}, and the longest batch", amount(name), amount("longest_s"), LATENCIES) for name in LATENCIES),
    *(
        _most(f"{_FIRST}_{part}, and {_LATENCY}_{part}", amount(f"{_FIRST}_{part}"), amount(f"{_LATENCY}_{part}"), LATENCIES)
        for part in _SPREAD
    ),
    *(
        _most(f"{name}_{less}, and {name}_{more}", amount(f"{name}_{less}"), amount(f"{name}_{more}"), LATENCIES)
        for name in (_LATENCY, _FIRST, _EACH)
        for less, more in itertools.pairwise(_SPREAD[1:])
    ),
    # Half of the values are as large as the middle one.
    *(
        _most(f"half of {name}_p50, and {name}_mean", amount(f"{name}_p50", times=0.5), amount(f"{name}_mean"), LATENCIES)
        for name in (_LATENCY, _FIRST, _EACH)
    ),
)  # fmt: skip


def _of_latencies(
    plan: Mapping[str, Any], result: Mapping[str, Any], times: Sequence[float]
) -> Iterator[Contradiction]:
    """Those of answers that all end with their batch, which is known where each has all of its tokens."""
    queries, new = count_of(result, "total_queries"), count_of(plan, "new_tokens")
    sizes = _sizes(plan, result, len(times))
    first = result.get(FIRST_TIMES)
    right = {_FIRST: _spread(first)} if isinstance(first, Sequence) and len(first) == queries else {}
    if new and queries and sizes and result.get("generated_tokens") == queries * new:
        # vLLM's percentiles are those of batches.
        sizes = [1] * len(times) if _is_vllm(plan) else sizes
        latencies = [seconds for seconds, size in zip(times, sizes, strict=True) for _ in range(size)]
        right[_LATENCY] = _spread(latencies)
        if new > 1:
            right[_EACH] = {"mean": _behind(result, new)}
    for name, parts in right.items():
        for part, expected in parts.items():
            said = result.get(f"{name}_{part}")
            if is_time(said) and expected is not None and not agrees(said, expected):
                yield f"{name}_{part} is {said:g}, and follows from the batches as {expected:g}", LATENCIES


def _behind(result: Mapping[str, Any], new: int) -> float | None:
    """The mean time of a token behind the first, of answers of `new` tokens each."""
    latency, first = result.get(f"{_LATENCY}_mean"), result.get(f"{_FIRST}_mean")
    return (latency - first) / (new - 1) if is_time(latency) and is_time(first) and latency > first else None


def _sizes(plan: Mapping[str, Any], result: Mapping[str, Any], batches: int) -> list[int]:
    """How many queries each batch had; none where that is not known."""
    queries, micro = count_of(result, "total_queries") or 0, count_of(plan, "micro_batch_size") or 0
    if queries and queries == batches * micro:
        return [micro] * batches
    rest = queries - (batches - 1) * micro
    is_of_one = count_of(result, "world_size") == 1
    return [*[micro] * (batches - 1), rest] if is_of_one and 0 < rest <= micro else []
