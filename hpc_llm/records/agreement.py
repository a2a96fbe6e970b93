"""Whether the figures of one run agree with one another and with its plan: anybody may have written them, and a disk may have
damaged them. Pure, standard library only.

Each figure alone is judged by `possible`; here are those that follow from others. Of two that contradict each other nobody knows
which one is right, so both count as missing. A figure that is not there contradicts nothing: earlier versions wrote fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hpc_llm.records import metrics
from hpc_llm.records.answering import LATENCIES, of_answers
from hpc_llm.records.comparing import RATES, Contradiction, agrees, count_of, is_time
from hpc_llm.records.holding import of_evaluations, of_parameters
from hpc_llm.records.possible import bounded, figure_of
from hpc_llm.records.relations import JOB_S, LOGGED, LOGGED_TIMES, OF_A_TRAINING, OF_ANY_RESULT, broken

ANSWERS = "infer"
_OTHERWISE = frozenset("infer eval evaluate prepare tune".split())
"""Tasks whose rates do not follow from batch and length, or that measure nothing."""
_MEASURES_NOTHING = frozenset("prepare tune".split())
_CROSS_ENTROPY = frozenset("pretrain finetune".split())
"""Tasks whose loss is never negative."""
_SIZES = (
    "world_size", "tensor_parallel", "data_parallel", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    "sequence_length", "warmup_steps",
)  # fmt: skip
_KINDS = ("precision", "weights")
_DEVICE_PEAKS = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes")
_LOSSES = ("loss_first", "loss_last", "eval_loss", "perplexity", "best_eval_loss")
_CHANCE = 7.0
"""Twelve standard deviations of the loss of one token of the made-up data, whose mean over few tokens may be below its floor."""
_TOLD = 2
"""So many of the contradictions are told."""
_Look = Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[Contradiction]]


def done_before(result: Mapping[str, Any]) -> int | None:
    """Steps of the training before those of a result; None where it does not say from which it went on."""
    resumed = result.get("resumed")
    return count_of(resumed, "step") if isinstance(resumed, Mapping) else None if resumed else 0


def warm_up_of(plan: Mapping[str, Any], result: Mapping[str, Any]) -> int | None:
    """Steps of the warm-up; None where neither says it."""
    warm = count_of(result, "warmup_steps")
    return count_of(plan, "warmup_steps") if warm is None else warm


def trains(plan: Mapping[str, Any]) -> bool:
    """Whether the rates of a run with that plan follow from its batch and the time of its steps."""
    return plan.get("task") not in _OTHERWISE


def contradictions(plan: Mapping[str, Any], result: Mapping[str, Any]) -> list[Contradiction]:
    """What in a result contradicts itself or the plan by its short names; both hold possible figures only.

    A result that says itself that it is INVALID was not made as planned, and says so in its own words.
    """
    found = [one for look in _looks(plan, result) for one in look(plan, result)]
    if not trains(plan):
        of_task = of_answers if plan.get("task") == ANSWERS else _of_nothing
        found += of_task(plan, result)
    return [*found, *_of_relations(plan, result), *_of_logged(plan, result)]


def _looks(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[_Look]:
    """What is asked of a result of that task."""
    if result.get("outcome") != "INVALID":
        yield from (_of_place, _of_sizes, _of_gpu)
    if trains(plan):
        yield from (_of_steps,) if result.get("outcome") != "INVALID" else ()
        yield from (_of_times, _of_rates, _of_losses)


def _of_place(plan: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Whether the plan agrees with itself on where it runs, and on what."""
    if (why := ranks_that_differ(plan)) is not None:
        yield why, ()
    of_data = next((name for name in ("epochs", "train_samples") if figure_of(plan, name)), None)
    if of_data is not None and "data" in plan and not plan["data"]:
        yield f"{of_data} is {plan[of_data]:g}, and the plan is one without data", ()


def _of_nothing(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Figures of a task that measures none: its result was made of another one's."""
    found = tuple(name for name in (*RATES, *LATENCIES, *_DEVICE_PEAKS, *_LOSSES) if result.get(name))
    if plan.get("task") in _MEASURES_NOTHING and found:
        yield f"task {plan['task']} measures nothing, and its result has {found[0]}", found


def _of_relations(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    beside, relations = _beside(plan, result), OF_ANY_RESULT
    if trains(plan):
        beside |= _of_training(plan, result) | of_evaluations(plan, result) | of_parameters(plan, result)
        relations = (*OF_A_TRAINING, *OF_ANY_RESULT)
    yield from broken({**result, **beside}, relations)


def _beside(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    hardware, peak = result.get("hardware"), f"{LOGGED}peak_allocated_bytes"
    is_one_node = plan.get("nodes") in (None, 1)  # others may have more memory than that of rank 0
    return {
        "node_bytes": hardware.get("host_memory_bytes") if isinstance(hardware, Mapping) and is_one_node else None,
        # A search goes on with the time of its earlier jobs.
        JOB_S: result.get(JOB_S) if plan.get("task") not in _MEASURES_NOTHING else None,
        # No byte at all is said where nobody counted.
        peak: result.get(peak) if result.get("peak_allocated_bytes") else None,
    }


def _of_training(plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    mean, batch = figure_of(result, "step_time_s_mean"), count_of(result, "global_batch_size")
    # What went on from a checkpoint counts what was done before, perhaps otherwise.
    is_whole = not result.get("resumed")
    length = count_of(result, "sequence_length") or count_of(plan, "sequence_length")
    logged = f"{LOGGED}trained_tokens"
    return {
        "planned_steps": count_of(plan, "steps") if is_whole else None,
        "planned_tokens": tokens_of_a_step(plan),
        "sample_s": mean / batch if mean and batch else None,
        "most_flops": 6 + 0.75 * length if length else None,
        logged: result.get(logged) if is_whole else None,
        "trained_tokens_of_all": None if is_whole else result.get("trained_tokens"),
        f"{LOGGED}trained_tokens_of_all": result.get(logged),
        **_of_epochs(plan, result, mean),
    }


def _of_epochs(plan: Mapping[str, Any], result: Mapping[str, Any], mean: float | None) -> dict[str, Any]:
    """What the time of an epoch follows from: the last step of the planned epochs may hold a part of a batch."""
    steps, is_endless = count_of(plan, "steps"), "data" in plan and not plan["data"]
    return {
        "planned_epochs": figure_of(plan, "epochs"),
        "steps_s": mean * steps if mean and steps else None,
        "steps_s_but_one": mean * (steps - 1) if mean and steps else None,
        "endless_epoch_s": figure_of(result, "epoch_time_s") if is_endless else None,
    }


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


def tokens_of_a_step(plan: Mapping[str, Any]) -> int | None:
    """Tokens of one step over all ranks; None where the plan does not say it, or contradicts itself."""
    batch, length = count_of(plan, "global_batch_size"), count_of(plan, "sequence_length")
    return batch * length if batch and length and batch_of(plan) in (None, batch) else None


def ranks_that_differ(plan: Mapping[str, Any]) -> str | None:
    """Says how the ranks of a plan are not those of its nodes, in a clause."""
    nodes, each, ranks = (count_of(plan, name) for name in ("nodes", "tasks_per_node", "world_size"))
    if nodes is None or each is None or ranks is None or nodes * each == ranks:
        return None
    return f"{ranks} ranks were planned, and {nodes} nodes with {each} each have {nodes * each}"


def contradiction_in(plan: Mapping[str, Any]) -> str | None:
    """What in a plan contradicts itself, in a clause."""
    if (why := ranks_that_differ(plan)) is not None:
        return why
    batch, right = count_of(plan, "global_batch_size"), batch_of(plan)
    if not trains(plan) or batch is None or right is None or batch == right:
        return None
    return f"a global batch of {batch} was planned, and follows from ranks, micro batch and accumulation as {right}"


def batch_of(record: Mapping[str, Any]) -> int | None:
    """The global batch that follows from the rest of a plan or a result."""
    ranks, alike = count_of(record, "world_size"), count_of(record, "tensor_parallel") or 1
    data = count_of(record, "data_parallel") or (ranks // alike if ranks and ranks % alike == 0 else None)
    micro, accumulation = count_of(record, "micro_batch_size"), count_of(record, "gradient_accumulation_steps")
    return data * micro * accumulation if data and micro and accumulation else None


def _of_times(_: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    """The times of the steps, and what is said of them all."""
    measured, mean = figure_of(result, "measured_steps"), figure_of(result, "step_time_s_mean")
    given = result.get("step_times_s")
    times = [one for one in given if is_time(one)] if isinstance(given, list) else []
    is_of_now = "data_parallel" in result
    if isinstance(given, list) and len(times) != len(given):
        yield "step_times_s holds what is no time of a step", RATES
    # Version 0.1 did not say how many ranks share a batch; of its records examples are kept with a part of the times.
    elif times and measured is not None and (measured != len(times) if is_of_now else measured < len(times)):
        yield f"measured_steps is {measured:g} and step_times_s holds {len(times)}", RATES
    elif times and mean is not None and not agrees(mean, metrics.mean(times) or 0.0):
        yield f"step_time_s_mean is {mean:g} and the mean of step_times_s {metrics.mean(times):g}", RATES
    elif len(times) == measured:
        yield from _of_percentiles(result, times)
    if measured == 0 and any(figure_of(result, name) is not None for name in RATES[1:]):
        yield "no step was measured, and there are figures of them", RATES


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
    if tflops is not None and per_gpu is not None and is_time(each) and not agrees(tflops, per_gpu * each / 1e12):
        yield f"model_tflops_per_gpu is {tflops:g}, and follows as {per_gpu * each / 1e12:g}", RATES
    if share is None or "peak_flops" not in result:
        return
    if not is_time(peak):
        yield f"mfu is {share:g} of a peak that is not known", RATES
    elif tflops is not None and not agrees(share, tflops * 1e12 / peak):
        yield f"mfu is {share:g}, and follows as {tflops * 1e12 / peak:g}", RATES


def _of_sizes(plan: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[Contradiction]:
    for name in _SIZES:
        ran, planned = count_of(result, name), count_of(plan, name)
        if ran is not None and planned is not None and ran != planned:
            is_ranks = name == "world_size"
            why = f"{ran} ranks ran, {planned} were planned" if is_ranks else f"{name} is {ran}, planned were {planned}"
            yield why, (*RATES, name)
    for name in _KINDS:
        ran, planned = result.get(name), plan.get(name)
        if isinstance(ran, str) and isinstance(planned, str) and ran != planned:
            yield f"{name} is {bounded(name, ran)}, planned was {bounded(name, planned)}", (*RATES, name)
    ran, planned = result.get("recompute"), plan.get("recompute")
    if isinstance(ran, float) and isinstance(planned, (bool, float)) and ran != planned:
        yield f"recompute is {ran:g}, planned was {float(planned):g}", (*RATES, "recompute")
    batch, right = count_of(result, "global_batch_size"), batch_of(result)
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
    measured, planned = figure_of(result, "measured_steps"), count_of(plan, "steps")
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
    measured, planned, done = count_of(result, "measured_steps"), count_of(plan, "steps"), done_before(result)
    warm, logged = warm_up_of(plan, result), count_of(result, f"{LOGGED}steps")
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
        if place < len(given) and is_time(given[place]) and not agrees(given[place], seconds):
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
    if is_time(floor):
        tokens = tokens_of_a_step(plan)
        if loss < 0.99 * floor - (_CHANCE / math.sqrt(tokens) if tokens else floor):
            return f"is {loss:g}, and the data have none below {floor:.4g}"
    if loss < 0 and plan.get("task") in _CROSS_ENTROPY:
        return f"is {loss:g}, and a cross entropy is never negative"
    return None
