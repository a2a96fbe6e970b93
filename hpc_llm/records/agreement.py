"""Whether the figures of one run agree with one another and with its plan: anybody may have written them, and a disk may have
damaged them. Pure, standard library only.

Each figure alone is judged by `possible`; here are those that follow from others. Of two that contradict each other nobody knows
which one is right, so both count as missing. A figure that is not there contradicts nothing: earlier versions wrote fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from hpc_llm.records import metrics
from hpc_llm.records.possible import bounded, figure_of
from hpc_llm.records.relations import LOGGED, LOGGED_TIMES, OF_A_RESULT, broken

TOLERANCE = 1e-3
"""Share by which a figure may differ from what it follows from: rounded by hand, as tables have it."""
_OTHERWISE = frozenset("infer eval evaluate prepare tune".split())
"""Tasks whose rates do not follow from batch and length, or that measure nothing."""
_CROSS_ENTROPY = frozenset("pretrain finetune".split())
"""Tasks whose loss is never negative."""
RATES = (
    "measured_steps", "step_time_s_mean", "step_time_s_p50", "step_time_s_p90", "step_times_s", "tokens_per_second",
    "tokens_per_second_per_gpu", "model_tflops_per_gpu", "mfu", "epoch_time_s", "prompt_tokens_per_second",
    "generated_tokens_per_second", "queries_per_second", "measured_window_s",
)  # fmt: skip
_SIZES = (
    "world_size", "tensor_parallel", "data_parallel", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    "sequence_length", "warmup_steps",
)  # fmt: skip
_KINDS = ("precision", "weights")
_DEVICE_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes")
_LOSSES = ("loss_first", "loss_last", "eval_loss", "perplexity", "best_eval_loss")
_CHANCE = 7.0
"""Twelve standard deviations of the loss of one token of the made-up data, whose mean over few tokens may be below its floor."""
_MOST = 1 << 53
_TOLD = 2
"""So many of the contradictions are told."""

Contradiction = tuple[str, tuple[str, ...]]
"""A sentence, and the names of the figures that count as missing for it."""


def done_before(result: Mapping[str, Any]) -> int | None:
    """Steps of the training before those of a result; None where it does not say from which it went on."""
    resumed = result.get("resumed")
    return _count(resumed, "step") if isinstance(resumed, Mapping) else None if resumed else 0


def warm_up_of(plan: Mapping[str, Any], result: Mapping[str, Any]) -> int | None:
    """Steps of the warm-up; None where neither says it."""
    warm = _count(result, "warmup_steps")
    return _count(plan, "warmup_steps") if warm is None else warm


def trains(plan: Mapping[str, Any]) -> bool:
    """Whether the rates of a run with that plan follow from its batch and the time of its steps."""
    return plan.get("task") not in _OTHERWISE


def contradictions(plan: Mapping[str, Any], result: Mapping[str, Any]) -> list[Contradiction]:
    """What in a result contradicts itself or the plan by its short names; both hold possible figures only.

    A result that says itself that it is INVALID was not made as planned, and says so in its own words.
    """
    if not trains(plan):
        return list(_of_answers(result)) if plan.get("task") == "infer" else []
    of_plan = (_of_sizes, _of_gpu, _of_steps) if result.get("outcome") != "INVALID" else ()
    found = [one for look in of_plan for one in look(plan, result)]
    return [
        *found,
        *_of_times(result),
        *_of_rates(plan, result),
        *_of_losses(plan, result),
        *_of_relations(plan, result),
        *_of_logged(plan, result),
    ]


def _of_relations(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    mean, batch = figure_of(result, "step_time_s_mean"), _count(result, "global_batch_size")
    # What went on from a checkpoint counts what was done before, perhaps otherwise.
    is_whole = not result.get("resumed")
    hardware, length = result.get("hardware"), _count(result, "sequence_length") or _count(plan, "sequence_length")
    logged, peak = f"{LOGGED}trained_tokens", f"{LOGGED}peak_allocated_bytes"
    has_loss = is_whole and result.get("eval_loss") is not None
    beside = {
        "planned_steps": _count(plan, "steps") if is_whole else None,
        "planned_tokens": tokens_of_a_step(plan),
        "sample_s": mean / batch if mean and batch else None,
        # Other nodes may have more memory than that of rank 0.
        "node_bytes": hardware.get("host_memory_bytes")
        if isinstance(hardware, Mapping) and plan.get("nodes") in (None, 1)
        else None,
        "most_flops": 6 + 0.75 * length if length else None,
        logged: result.get(logged) if is_whole else None,
        # No byte at all is said where nobody counted.
        peak: result.get(peak) if result.get("peak_allocated_bytes") else None,
        "trained_tokens_of_all": None if is_whole else result.get("trained_tokens"),
        f"{LOGGED}trained_tokens_of_all": result.get(logged),
        "held_on_host": _held_on_host(result),
        "evaluations_of_loss": result.get("evaluations") if has_loss else None,
    }
    return broken({**result, **beside}, OF_A_RESULT)


def _held_on_host(result: Mapping[str, Any]) -> int | None:
    """Bytes that a training on the CPU holds between steps; what a GPU's driver locks on the host is not counted as the process's everywhere."""
    held = result.get("held_bytes")
    parts = [part for part in held.values() if isinstance(part, Mapping)] if isinstance(held, Mapping) else []
    if not parts or any(part.get("device") != 0 for part in parts):
        return None
    return sum(size for part in parts if isinstance(size := part.get("host"), int)) or None


def agreeing(
    plan: Mapping[str, Any], result: Mapping[str, Any], beside: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], str | None]:
    """The result without the figures that contradict one another, the plan or what other records say `beside`, and what contradicts what."""
    found = contradictions(plan, {**result, **(beside or {})})
    if not found:
        return dict(result), None
    missing = {name: None for _, names in found for name in names if name in result}
    said = [why for why, _ in found]
    more = f", and {len(said) - _TOLD} more" if len(said) > _TOLD else ""
    return {**result, **missing}, f"its records contradict each other: {', and '.join(said[:_TOLD])}{more}"


def agrees(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=TOLERANCE)


def tokens_of_a_step(plan: Mapping[str, Any]) -> int | None:
    """Tokens of one step over all ranks; None where the plan does not say it, or contradicts itself."""
    batch, length = _count(plan, "global_batch_size"), _count(plan, "sequence_length")
    return batch * length if batch and length and batch_of(plan) in (None, batch) else None


def contradiction_in(plan: Mapping[str, Any]) -> str | None:
    """What in a plan contradicts itself, in a clause."""
    batch, right = _count(plan, "global_batch_size"), batch_of(plan)
    if not trains(plan) or batch is None or right is None or batch == right:
        return None
    return f"a global batch of {batch} was planned, and follows from ranks, micro batch and accumulation as {right}"


def batch_of(record: Mapping[str, Any]) -> int | None:
    """The global batch that follows from the rest of a plan or a result."""
    ranks, alike = _count(record, "world_size"), _count(record, "tensor_parallel") or 1
    data = _count(record, "data_parallel") or (ranks // alike if ranks and ranks % alike == 0 else None)
    micro, accumulation = _count(record, "micro_batch_size"), _count(record, "gradient_accumulation_steps")
    return data * micro * accumulation if data and micro and accumulation else None


def _count(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def _of_times(result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """The times of the steps, and what is said of them all."""
    measured, mean = figure_of(result, "measured_steps"), figure_of(result, "step_time_s_mean")
    given = result.get("step_times_s")
    times = [one for one in given if _is_time(one)] if isinstance(given, list) else []
    if isinstance(given, list) and len(times) != len(given):
        yield "step_times_s holds what is no time of a step", RATES
    elif times and measured is not None and measured < len(times):
        yield f"measured_steps is {measured:g} and step_times_s holds {len(times)}", RATES
    elif times and mean is not None and not agrees(mean, metrics.mean(times) or 0.0):
        yield f"step_time_s_mean is {mean:g} and the mean of step_times_s {metrics.mean(times):g}", RATES
    elif len(times) == measured:
        yield from _of_percentiles(result, times)
    if measured == 0 and any(figure_of(result, name) is not None for name in RATES[1:]):
        yield "no step was measured, and there are figures of them", RATES


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _of_percentiles(result: Mapping[str, Any], times: Sequence[float]) -> Iterator[Contradiction]:
    for percent in (50, 90):
        said, right = figure_of(result, f"step_time_s_p{percent}"), metrics.percentile(times, percent)
        if said is not None and right is not None and not agrees(said, right):
            yield f"step_time_s_p{percent} is {said:g} and that of step_times_s {right:g}", RATES


def _of_rates(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    rate, mean = figure_of(result, "tokens_per_second"), figure_of(result, "step_time_s_mean")
    tokens = tokens_of_a_step({**plan, **{name: result[name] for name in _SIZES if result.get(name) is not None}})
    if rate is not None and mean is not None and tokens and not agrees(rate, tokens / mean):
        yield f"tokens_per_second is {rate:.7g}, and {tokens} tokens in {mean:g} s are {tokens / mean:.7g}", RATES
    per_gpu, ranks = figure_of(result, "tokens_per_second_per_gpu"), figure_of(result, "world_size")
    if rate is not None and per_gpu is not None and ranks and not agrees(per_gpu * ranks, rate):
        yield f"tokens_per_second_per_gpu is {per_gpu:.7g} on {ranks:g} ranks, tokens_per_second {rate:.7g}", RATES
    yield from _of_flops(result, per_gpu)


def _of_flops(result: Mapping[str, Any], per_gpu: float | None) -> Iterator[Contradiction]:
    tflops, share = figure_of(result, "model_tflops_per_gpu"), figure_of(result, "mfu")
    each, peak = result.get("flops_per_token"), result.get("peak_flops")
    if tflops is not None and per_gpu is not None and _is_time(each) and not agrees(tflops, per_gpu * each / 1e12):
        yield f"model_tflops_per_gpu is {tflops:g}, and follows as {per_gpu * each / 1e12:g}", RATES
    if share is None or "peak_flops" not in result:
        return
    if not _is_time(peak):
        yield f"mfu is {share:g} of a peak that is not known", RATES
    elif tflops is not None and not agrees(share, tflops * 1e12 / peak):
        yield f"mfu is {share:g}, and follows as {tflops * 1e12 / peak:g}", RATES


def _of_sizes(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    for name in _SIZES:
        ran, planned = _count(result, name), _count(plan, name)
        if ran is not None and planned is not None and ran != planned:
            is_ranks = name == "world_size"
            why = f"{ran} ranks ran, {planned} were planned" if is_ranks else f"{name} is {ran}, planned were {planned}"
            yield why, (*RATES, name)
    for name in _KINDS:
        ran, planned = result.get(name), plan.get(name)
        if isinstance(ran, str) and isinstance(planned, str) and ran != planned:
            yield f"{name} is {bounded(name, ran)}, planned was {bounded(name, planned)}", (*RATES, name)
    batch, right = _count(result, "global_batch_size"), batch_of(result)
    if batch is not None and right is not None and batch != right:
        yield f"global_batch_size is {batch}, and follows from ranks, micro batch and accumulation as {right}", RATES


def _of_gpu(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    gpu, hardware, expected = result.get("gpu"), result.get("hardware"), plan.get("expected_gpu")
    if plan.get("gpus_per_node") == 0 and any(figure_of(result, name) for name in _DEVICE_PEAKS):
        yield "it has peaks of a GPU's memory, and the plan is one without GPUs", _DEVICE_PEAKS
    if not isinstance(gpu, str):
        return
    beside = hardware.get("gpu", gpu) if isinstance(hardware, Mapping) else gpu
    gpu = bounded("gpu", gpu)
    named = ("gpu", *RATES)
    if plan.get("gpus_per_node") == 0:
        yield f"gpu is {gpu}, and the plan is one without GPUs", named
    elif beside != result["gpu"]:
        yield f"gpu is {gpu}, and among its hardware {bounded('gpu', str(beside or 'none'))}", named
    elif isinstance(expected, str) and metrics.same_gpu(expected, gpu) is False:
        yield f"it ran on {gpu}, {expected} was planned", named


def _of_steps(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    measured, planned = figure_of(result, "measured_steps"), _count(plan, "steps")
    if measured is not None and planned and measured > planned:
        yield f"{measured:g} steps were measured, {planned} were planned", RATES
    has_rate = figure_of(result, "tokens_per_second") is not None
    is_whole = result.get("outcome") in (None, "COMPLETED")
    if is_whole and has_rate and measured is not None and 0 < measured < metrics.MIN_MEASURED_STEPS:
        yield f"{measured:g} steps were measured, at least {metrics.MIN_MEASURED_STEPS} are needed", RATES
    yield from _of_all_steps(plan, result)


def _of_all_steps(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Whether a run that completed made all planned steps: one of ours ends no training early. Another task may."""
    if plan.get("task") not in _CROSS_ENTROPY or result.get("outcome") != "COMPLETED":
        return
    measured, planned, done = _count(result, "measured_steps"), _count(plan, "steps"), done_before(result)
    warm, logged = warm_up_of(plan, result), _count(result, f"{LOGGED}steps")
    if planned is None or done is None or measured is None:
        return
    # What was begun again may have had too few steps left to measure.
    expected = planned - done - warm if warm is not None else None
    if expected is not None and measured < expected and not (measured == 0 and done):
        yield f"{measured} steps were measured, and {expected} of the {planned} that were planned", RATES
    elif logged is not None and logged < planned:
        yield f"it completed, and its steps.jsonl ends at step {logged} of {planned}", RATES


def _of_logged(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """The time of each measured step, and that in its line of steps.jsonl."""
    given, logged = result.get("step_times_s"), result.get(LOGGED_TIMES)
    if not isinstance(given, list) or not isinstance(logged, Mapping) or len(given) != result.get("measured_steps"):
        return
    for place, seconds in logged.items():
        if place < len(given) and _is_time(given[place]) and not agrees(given[place], seconds):
            yield f"step_times_s has {given[place]:g} s of a step, and steps.jsonl {seconds:g} s", RATES
            return


def _of_losses(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    for name in _LOSSES[:3]:
        loss = figure_of(result, name)
        if loss is not None and (why := why_no_loss(plan, loss)):
            yield f"{name} {why}", _LOSSES


def why_no_loss(plan: Mapping[str, Any], loss: float) -> str | None:
    """Why a loss cannot be one of a run with that plan; None where it can."""
    floor = plan.get("loss_floor_nats")
    if _is_time(floor):
        tokens = tokens_of_a_step(plan)
        if loss < 0.99 * floor - (_CHANCE / math.sqrt(tokens) if tokens else floor):
            return f"is {loss:g}, and the data have none below {floor:.4g}"
    if loss < 0 and plan.get("task") in _CROSS_ENTROPY:
        return f"is {loss:g}, and a cross entropy is never negative"
    return None


def _of_answers(result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Tokens of prompts and answers over the whole time."""
    names = ("prompt_tokens", "generated_tokens", "total_time_s", "tokens_per_second")
    prompt, generated, seconds, rate = (figure_of(result, name) for name in names)
    if prompt is not None and generated is not None and seconds and rate is not None:
        expected = (prompt + generated) / seconds
        if not agrees(rate, expected):
            yield (
                f"tokens_per_second is {rate:.7g}, and {prompt + generated:g} tokens in {seconds:g} s are {expected:.7g}",
                RATES,
            )
