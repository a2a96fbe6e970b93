"""Records of one run that contradict each other, or its plan, give no figures; those of honest runs are left as they are."""

from __future__ import annotations

import copy
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.api.answers import report
from hpc_llm.api.handle import Run, status
from hpc_llm.api.rows import parse
from hpc_llm.records import metrics
from hpc_llm.records.comparing import RATES
from hpc_llm.records.run import RunPaths
from hpc_llm.runs.reading import read_records

PLAN: dict[str, Any] = {
    "task": "pretrain", "cluster": "local", "method": "ddp", "model": "tiny", "nodes": 1, "gpus_per_node": 0, "world_size": 1,
    "data_parallel": 1, "tensor_parallel": 1, "micro_batch_size": 2, "gradient_accumulation_steps": 1, "global_batch_size": 2,
    "sequence_length": 32, "steps": 12, "warmup_steps": 5, "precision": "fp32", "loss_floor_nats": 1.213,
}  # fmt: skip
TIMES = [0.008, 0.010, 0.008, 0.009, 0.007, 0.008, 0.007]
SIZES = (
    "world_size", "data_parallel", "tensor_parallel", "micro_batch_size", "gradient_accumulation_steps", "global_batch_size",
    "sequence_length", "warmup_steps", "precision",
)  # fmt: skip
Forgery = Callable[[dict[str, Any]], Any]


def result_of(plan: dict[str, Any], times: list[float] = TIMES, **more: Any) -> dict[str, Any]:
    """What the worker writes."""
    rate = metrics.tokens_per_second(plan["global_batch_size"] * plan["sequence_length"], times)
    per_gpu = rate and rate / plan["world_size"]
    return {
        "schema": 1, "outcome": "COMPLETED", "gpu": None, "hardware": {"gpu": None, "gpus_visible": 0},
        **{name: plan[name] for name in SIZES}, "measured_steps": len(times), "step_times_s": times,
        "step_time_s_mean": metrics.mean(times), "step_time_s_p50": metrics.percentile(times, 50),
        "step_time_s_p90": metrics.percentile(times, 90), "tokens_per_second": rate, "tokens_per_second_per_gpu": per_gpu,
        "flops_per_token": 2.85e6, "model_tflops_per_gpu": per_gpu and per_gpu * 2.85e6 / 1e12, "peak_flops": None, "mfu": None,
        "loss_first": 6.2, "loss_last": 6.3 - 0.1 * plan["steps"], "eval_loss": None, "elapsed_s": 18.5, **more,
    }  # fmt: skip


def steps_of(plan: dict[str, Any], times: list[float] = TIMES, done: int = 0) -> list[dict[str, Any]]:
    """Its lines, those of a training that goes on behind `done` steps."""
    tokens, warm = plan["global_batch_size"] * plan["sequence_length"], plan["warmup_steps"]
    rows, now = [], 1.79e9
    for number, seconds in enumerate([0.3] * warm + times, start=done + 1):
        now += seconds
        row = {
            "step": number,
            "loss": 6.3 - 0.1 * number,
            "step_time_s": seconds,
            "tokens_per_second": tokens / seconds,
        }
        rows.append({**row, "skipped": False, "warmup": number <= done + warm, "time": now})
    return rows


def written(
    at: Path, result: dict[str, Any] | str | None, steps: list[dict[str, Any]], plan: dict[str, Any] | None = None
) -> Path:
    at.mkdir(parents=True)
    (at / "experiment.json").write_text(json.dumps({"schema": 1, "run_id": at.name, "plan": plan or PLAN}))
    (at / "exit.json").write_text(json.dumps({"schema": 1, "exit_code": 0, "stage": "done"}))
    if result is not None:
        (at / "result.json").write_text(result if isinstance(result, str) else json.dumps(result))
    (at / "steps.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return at


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a rate": (
        {"tokens_per_second": 9e8, "tokens_per_second_per_gpu": 9e8},
        "tokens_per_second is 9e+08, and 64 tokens",
    ),
    "a rate of each GPU": ({"tokens_per_second_per_gpu": 9e8}, "tokens_per_second_per_gpu is 9e"),
    "a mean": ({"step_time_s_mean": 1e-6}, "step_time_s_mean is 1e-06"),
    "a percentile": ({"step_time_s_p90": 1e-6}, "step_time_s_p90 is 1e-06"),
    "times": ({"step_times_s": [1e-9] * 7}, "the mean of step_times_s 1e-09"),
    "times of another kind": ({"step_times_s": ["0.008"] * 7}, "no time of a step"),
    "no step": ({"measured_steps": 0}, "measured_steps is 0"),
    "no step without times": ({"measured_steps": 0, "step_times_s": []}, "no step was measured"),
    "too few steps": ({"measured_steps": 1, "step_times_s": [0.00814]}, "1 steps were measured, at least 3"),
    "more steps than planned": ({"measured_steps": 4000}, "4000 steps were measured, 12 were planned"),
    "ranks": ({"world_size": 64}, "64 ranks ran, 1 were planned"),
    "a batch": ({"micro_batch_size": 4096, "global_batch_size": 4096}, "micro_batch_size is 4096"),
    "a global batch": ({"global_batch_size": 4096}, "global_batch_size is 4096"),
    "a length": ({"sequence_length": 8}, "sequence_length is 8"),
    "a GPU": ({"gpu": "NVIDIA H100 80GB HBM3"}, "the plan is one without GPUs"),
    "FLOPs": ({"model_tflops_per_gpu": 9e4}, "model_tflops_per_gpu is 90000"),
    "a share of no peak": ({"mfu": 0.99}, "mfu is 0.99 of a peak that is not known"),
    "a share of a peak": ({"mfu": 0.99, "peak_flops": 1e15}, "mfu is 0.99, and follows as"),
    "a negative loss": ({"loss_first": -5}, "loss_first is -5"),
    "a loss below the floor": ({"loss_last": 0.0001}, "loss_last is 0.0001"),
    "a held-out loss": ({"eval_loss": -1.0}, "eval_loss is -1"),
}


def test_less_memory_than_is_held_on_the_host_is_no_figure(tmp_path: Path) -> None:
    held = {"parameters": {"device": 0, "host": 1_049_856}}
    [row] = parse(written(tmp_path / "r1", result_of(PLAN, peak_host_bytes=10, held_bytes=held), steps_of(PLAN)))
    assert (row.outcome, row.peak_host_bytes) == ("INVALID", None)
    assert "bytes held on the host, and peak_host_bytes: 1049856 and 10" in (row.invalid_reason or "")
    held["parameters"] = {
        "device": 9,
        "host": 1_049_856,
    }  # locked for a GPU, which is not counted as the process's everywhere
    [row] = parse(written(tmp_path / "r2", result_of(PLAN, peak_host_bytes=10, held_bytes=held), steps_of(PLAN)))
    assert row.peak_host_bytes == 10


@pytest.mark.parametrize("name", FORGED)
def test_what_contradicts_is_no_figure_and_the_row_says_why(name: str, tmp_path: Path) -> None:
    changed, why = FORGED[name]
    made = written(tmp_path / "r1", result_of(PLAN, **changed), steps_of(PLAN))
    [row], [state], result = parse(made), status(made), Run(made).result
    assert (row.outcome, state.outcome) == ("INVALID", "INVALID") and result is not None
    for reason in (row.outcome_reason, row.invalid_reason, state.reason):
        assert "contradict" in (reason or "") and why in (reason or "")
    if "loss" in name:
        assert row.loss_first is row.loss_last is row.eval_loss is result["loss_first"] is None
    else:
        assert row.tokens_per_second is state.tokens_per_second is row.step_time_s_mean is row.mfu is None
        assert all(result.get(rate) is None for rate in RATES)
    assert row.world_size == 1 and row.global_batch_size == 2 and row.gpu is None


@pytest.mark.parametrize(
    ("changed", "why", "empty"),
    [
        ({"num_parameters": 7, "trainable_parameters": 8}, "trainable and all parameters", "num_parameters"),
        ({"trained_tokens": 10**12}, "trained tokens, and those of the planned steps", "trained_tokens"),
        ({"epoch_time_s": 1e-3}, "the time of one sample, and of an epoch", "epoch_time_s"),
        ({"eval_loss": 2.0, "perplexity": 1.01}, "perplexity, and the exponential", "perplexity"),
        ({"eval_loss": 2.0, "evaluations": 0}, "evaluations, of which there is a loss", "eval_loss"),
        ({"elapsed_s": 0.0, **{n: v for n, v in result_of(PLAN, [1.0] * 7).items() if "step" in n or n in RATES}}, "seconds of steps, and of the run", "step_time_s_mean"),
        ({n: v for n, v in result_of(PLAN, [2e-5] * 7).items() if "step" in n or n in RATES}, "seconds of the least step", "tokens_per_second"),
    ],
)  # fmt: skip
def test_figures_that_follow_from_others(tmp_path: Path, changed: dict[str, Any], why: str, empty: str) -> None:
    [row] = parse(written(tmp_path / "r1", result_of(PLAN, **changed), steps_of(PLAN)))
    assert why in (row.invalid_reason or "") and getattr(row, empty) is None
    if "trained_tokens" in changed:
        [row] = parse(written(tmp_path / "r2", result_of(PLAN, **changed, resumed={"step": 4}), steps_of(PLAN)))
        assert row.trained_tokens == 10**12  # those of before, whose batch may have been another


def test_a_report_takes_no_mean_of_what_contradicts(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "honest", result_of(PLAN), steps_of(PLAN))
    for number, (changed, _) in enumerate(FORGED.values()):
        written(tmp_path / "logs" / f"r{number}", result_of(PLAN, **changed), steps_of(PLAN))
    report([tmp_path / "logs"], output=tmp_path / "page")
    table = list(csv.DictReader((tmp_path / "page" / "results.csv").open()))
    honest = [row for row in table if row["outcome"] == "COMPLETED"]
    assert [float(row["tokens_per_second"]) for row in honest] == [pytest.approx(64 / (sum(TIMES) / 7))]
    assert [row["runs"] for row in honest] == ["1"]
    kept = {row["tokens_per_second"] for row in table if row["outcome"] == "INVALID"}
    assert kept <= {"", honest[0]["tokens_per_second"]}  # of those whose losses alone contradict


def test_a_name_with_two_values_is_a_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(result_of(PLAN))[:-1] + ', "tokens_per_second": 1e9}'
    steps = steps_of(PLAN)
    made = written(tmp_path / "r1", text, steps)
    with pytest.warns(UserWarning, match="one name several values"):
        [row] = parse(made)
    assert row.outcome == "UNKNOWN" and row.tokens_per_second == pytest.approx(64 / (sum(TIMES) / 7))
    lines = [json.dumps(step) for step in steps]
    lines[8] = lines[8][:-1] + ', "step_time_s": 1e-9}'
    (made / "result.json").unlink()
    (made / "steps.jsonl").write_text("\n".join(lines) + "\n")
    [row] = parse(made)
    assert row.tokens_per_second is None and "step 10 stands behind step 8" in (row.outcome_reason or "")


def without(*numbers: int) -> Forgery:
    return lambda rows: [row for row in rows if row["step"] not in numbers]


def each(**changed: Any) -> Forgery:
    return lambda rows: [{**row, **changed} for row in rows]


BROKEN: dict[str, tuple[Forgery, str]] = {
    "a line is missing": (without(9), "step 10 stands behind step 8"),
    "the first is missing": (without(1), "step 6 is none of the warm-up"),
    "lines are there twice": (lambda rows: rows + rows, "step 1 stands behind step 12"),
    "one is there twice": (lambda rows: rows[:9] + rows[8:], "step 9 stands behind step 9"),
    "out of order": (lambda rows: rows[::-1], "step 12 is none of the warm-up"),
    "two changed places": (lambda rows: [*rows[:8], rows[9], rows[8], *rows[10:]], "step 10 stands behind step 8"),
    "times are forged": (each(step_time_s=1e-5), "tokens by its rate and its time"),
    "no warm-up": (each(warmup=False), "step 1 is none of the warm-up"),
    "all is warm-up": (each(warmup=True), "step 6 is one of the warm-up"),
    "warm-up in words": (each(warmup="false"), "does not say whether"),
    "losses below the floor": (each(loss=1e-4), "the loss of step 1 is 0.0001"),
    "more than planned": (lambda rows: [*rows, {**rows[-1], "step": 13}], "step 13 is there, 12 were planned"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_steps_that_contradict_give_no_rate(name: str, tmp_path: Path) -> None:
    change, why = BROKEN[name]
    made = written(tmp_path / "r1", None, change(steps_of(PLAN)))  # type: ignore[arg-type]
    [row], [state] = parse(made), status(made)
    assert row.tokens_per_second is state.tokens_per_second is row.step_time_s_mean is row.measured_steps is None
    for reason in (row.outcome_reason, state.reason):
        assert "its steps.jsonl gives no rate" in (reason or "") and why in (reason or "")


def test_a_half_line_within_is_a_missing_step_and_at_the_end_none(tmp_path: Path) -> None:
    rows = [json.dumps(row) for row in steps_of(PLAN)]
    made = written(tmp_path / "r1", None, [])
    (made / "steps.jsonl").write_text("\n".join([*rows[:8], '{"step": 9, "loss', *rows[9:]]) + "\n")
    assert parse(made)[0].tokens_per_second is None
    (made / "steps.jsonl").write_text("\n".join([*rows[:11], '{"step": 12, "lo']))
    [row], [state] = parse(made), status(made)
    assert row.tokens_per_second == state.tokens_per_second == pytest.approx(64 / (sum(TIMES[:6]) / 6))


def test_a_plan_that_contradicts_itself_gives_no_batch(tmp_path: Path) -> None:
    made = written(tmp_path / "r1", None, steps_of(PLAN), {**PLAN, "global_batch_size": 1 << 40})
    [row], [state] = parse(made), status(made)
    assert row.global_batch_size is row.tokens_per_second is state.tokens_per_second is None
    assert "a global batch of 1099511627776 was planned" in (row.outcome_reason or "")


def test_status_and_parse_tell_one_rate_however_many_steps(tmp_path: Path) -> None:
    plan = {**PLAN, "steps": 2005}
    steps = steps_of(plan, [0.5 if number < 700 else 0.1 for number in range(1000)])
    for step in steps[300:]:
        step["time"] += 500  # something was saved
    steps = [{**step, "loss": 3.0} for step in steps]
    [row], [state] = parse(made := written(tmp_path / "r1", None, steps, plan)), status(made)
    assert row.tokens_per_second == state.tokens_per_second == pytest.approx(64 / 0.38)


def changed_plan(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PLAN), **changes}


FOUR = changed_plan(gpus_per_node=4, world_size=4, data_parallel=2, tensor_parallel=2, global_batch_size=4)
A100 = {"gpu": "NVIDIA A100-SXM4-40GB", "hardware": {"gpu": "NVIDIA A100-SXM4-40GB", "gpus_visible": 4}}
OLD = ("data_parallel", "tensor_parallel", "flops_per_token", "peak_flops", "loss_floor_nats", "hardware")
HONEST: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as it is": (PLAN, result_of(PLAN)),
    "ranks that share layers": (FOUR, result_of(FOUR, **A100)),
    "gone on with": (PLAN, result_of(PLAN, TIMES[:4], resumed={"step": 3, "checkpoint": "x"})),
    "begun again near the end": (PLAN, result_of(PLAN, [], resumed={"step": 11, "checkpoint": "x"}, epoch_time_s=None)),
    "skipped by the loss scaler": (PLAN, result_of(PLAN, skipped_steps=4)),
    "evaluated": (PLAN, result_of(PLAN, eval_loss=5.1, perplexity=164.02, best_eval_loss=5.1, elapsed_s=900.0)),
    "by chance below the floor": (PLAN, result_of(PLAN, loss_last=1.15)),
    "another task": (changed_plan(task="theirs", loss_floor_nats=None), result_of(PLAN, loss_last=-3.0)),
    "of version 0.1": (PLAN, {k: v for k, v in result_of(PLAN).items() if k not in OLD}),
    "rounded": (PLAN, result_of(PLAN, tokens_per_second=round(64 / (sum(TIMES) / 7), 1))),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_runs_are_left_as_they_are(name: str, tmp_path: Path) -> None:
    plan, result = HONEST[name]
    steps = steps_of(plan, result["step_times_s"] or TIMES, (result.get("resumed") or {"step": 0})["step"])[
        : plan["steps"]
    ]
    steps = [step for step in steps if step["step"] <= plan["steps"]]
    result = {**result, "loss_first": steps[0]["loss"]}
    steps[-1]["loss"] = result["loss_last"]
    [row], [state] = parse(made := written(tmp_path / "r1", result, steps, plan)), status(made)
    assert (row.outcome, row.outcome_reason, state.reason) == ("COMPLETED", None, None)
    assert row.tokens_per_second == state.tokens_per_second == result["tokens_per_second"]
    assert (row.measured_steps, row.loss_last) == (result["measured_steps"], result["loss_last"])


def test_a_run_with_fewer_ranks_that_says_so_keeps_its_figures(tmp_path: Path) -> None:
    plan = changed_plan(world_size=2, data_parallel=2, global_batch_size=4)
    said = "1 ranks ran, 2 were planned"
    result = result_of(plan, outcome="INVALID", invalid_reason=said, outcome_reason=said) | {
        "world_size": 1,
        "tokens_per_second_per_gpu": 128 / (sum(TIMES) / 7),
        "model_tflops_per_gpu": 128 / (sum(TIMES) / 7) * 2.85e6 / 1e12,
    }
    [row] = parse(written(tmp_path / "r1", result, steps_of(plan), plan))
    assert (row.outcome, row.outcome_reason) == ("INVALID", said) and row.tokens_per_second == result[
        "tokens_per_second"
    ]


def test_answers_are_held_to_their_own_time(tmp_path: Path) -> None:
    plan = {"task": "infer", "cluster": "local", "model": "tiny", "world_size": 2, "micro_batch_size": 4, "steps": 9}
    told = {
        "schema": 1, "outcome": "COMPLETED", "measured_steps": 3, "step_times_s": [2.0] * 6, "step_time_s_mean": 2.0,
        "prompt_tokens": 600, "generated_tokens": 300, "total_time_s": 6.0, "world_size": 2,
    }  # fmt: skip
    honest = written(tmp_path / "a", {**told, "tokens_per_second": 150.0}, [], plan)
    forged = written(tmp_path / "b", {**told, "tokens_per_second": 9e6}, [], plan)
    [one], [other] = parse(honest), parse(forged)
    assert (one.outcome, one.tokens_per_second, one.outcome_reason) == ("COMPLETED", 150.0, None)
    assert (other.outcome, other.tokens_per_second) == ("INVALID", None)


@pytest.mark.parametrize("done", [0, 6])
def test_steps_of_a_training_that_goes_on_are_whole(done: int, tmp_path: Path) -> None:
    plan = changed_plan(steps=12 + done)
    [row], [state] = parse(made := written(tmp_path / "r1", None, steps_of(plan, done=done), plan)), status(made)
    assert row.tokens_per_second == state.tokens_per_second == pytest.approx(64 / (sum(TIMES) / 7))
    assert row.measured_steps == 7 and "gives no rate" not in (row.outcome_reason or "")


def test_a_later_try_in_the_same_file_replaces_the_one_before(tmp_path: Path) -> None:
    earlier, later = steps_of(PLAN), steps_of(PLAN, [2 * seconds for seconds in TIMES])
    for row in later:
        row["time"] += 1000
    [row], [state] = parse(made := written(tmp_path / "r1", None, earlier[:9] + later)), status(made)
    assert row.tokens_per_second == state.tokens_per_second == pytest.approx(64 / (sum(TIMES) / 7) / 2)


def test_a_last_loss_that_no_step_had_is_no_figure(tmp_path: Path) -> None:
    made = written(tmp_path / "r1", result_of(PLAN, loss_last=4.9), steps_of(PLAN))
    [row], [state] = parse(made), status(made)
    assert (row.outcome, row.loss_last, row.loss_first, Run(made).result["loss_last"]) == ("INVALID", None, None, None)
    assert "loss_last, and that of steps.jsonl: 4.9 and 5.1" in (row.invalid_reason or "")
    assert state.outcome == "INVALID" and row.tokens_per_second is not None


def scaled(by: float) -> dict[str, Any]:
    """Rates that agree with one another, and with no line."""
    made = result_of(PLAN, [by * seconds for seconds in TIMES])
    return {name: made[name] for name in made if name in RATES}


PEAK, GIB = "peak_allocated_bytes", 1 << 30
BESIDE_STEPS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "all times": (scaled(0.1), {}, "step_time_s_mean, and that of steps.jsonl", "tokens_per_second"),
    "times that changed places": (
        {"step_times_s": TIMES[::-1]},
        {},
        "step_times_s has 0.007 s of a step, and steps.jsonl 0.008",
        "tokens_per_second",
    ),
    "the first loss": ({"loss_first": 9.9}, {}, "loss_first, and that of steps.jsonl: 9.9 and 6.2", "loss_first"),
    "tokens": ({"trained_tokens": 5}, {"trained_tokens": 62}, "trained_tokens, and that of steps.jsonl: 5 and 744", "trained_tokens"),
    "tokens of a part": ({"trained_tokens": 5, "resumed": {"step": 0}}, {"trained_tokens": 62}, "trained_tokens by steps.jsonl", "trained_tokens"),
    "memory": ({PEAK: 10 * GIB}, {PEAK: 60 * GIB}, "peak_allocated_bytes by steps.jsonl", PEAK),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE_STEPS)
def test_a_figure_that_the_lines_contradict_is_none(name: str, tmp_path: Path) -> None:
    result, lines, why, empty = BESIDE_STEPS[name]
    plan = {**PLAN, "gpus_per_node": 1}
    made = written(tmp_path / "r1", result_of(PLAN, **result), [{**step, **lines} for step in steps_of(PLAN)], plan)
    [row], [state], found = parse(made), status(made), Run(made).result
    assert (row.outcome, state.outcome) == ("INVALID", "INVALID") and found is not None
    assert why in (row.invalid_reason or "") and row.invalid_reason == state.reason
    assert getattr(row, empty) is found[empty] is None


def test_a_run_that_ended_before_its_plan_did_not_complete(tmp_path: Path) -> None:
    longer = changed_plan(steps=600)
    [row], [state] = parse(made := written(tmp_path / "r1", result_of(PLAN), steps_of(PLAN), longer)), status(made)
    assert (row.outcome, state.outcome, row.tokens_per_second) == ("INVALID", "INVALID", None)
    assert "7 steps were measured, and 595 of the 600 that were planned" in (row.invalid_reason or "")
    [row] = parse(written(tmp_path / "r2", result_of(PLAN), steps_of(PLAN)[:3]))
    assert "it completed, and its steps.jsonl ends at step 3 of 12" in (row.invalid_reason or "")
    [row] = parse(written(tmp_path / "r3", result_of(PLAN), steps_of(PLAN), {**longer, "task": "theirs"}))
    assert row.outcome == "COMPLETED"  # a task of others may end early


def test_an_attempt_that_goes_on_behind_another_one_is_not_held_to_its_result(tmp_path: Path) -> None:
    later = [{**step, "time": step["time"] + 900, "step_time_s": 0.5} for step in steps_of(PLAN)[:9]]
    [row] = parse(written(tmp_path / "r1", result_of(PLAN), [*steps_of(PLAN), *later]))
    assert (row.outcome, row.outcome_reason) == ("COMPLETED", None)


TOGETHER: dict[str, tuple[dict[str, Any], str, str]] = {
    "more memory than the node has": (
        {"peak_host_bytes": 500 * GIB, "hardware": {"gpu": None, "host_memory_bytes": 25 * GIB}},
        "peak_host_bytes, and the memory of the node",
        "peak_host_bytes",
    ),
    "more than is reserved": ({PEAK: 50 * GIB, "peak_reserved_bytes": GIB}, "peak_allocated_bytes, and peak_reserved", PEAK),
    "memory of no GPU": ({PEAK: GIB, "peak_reserved_bytes": GIB}, "peaks of a GPU's memory, and the plan is one without", PEAK),
    "parameters without products": ({"num_parameters": 7 * 10**9}, "a tenth of num_parameters", "num_parameters"),
    "products without parameters": ({"num_parameters": 700}, "flops_per_token, and the most", "num_parameters"),
    "another precision": ({"precision": "bf16"}, "precision is bf16, planned was fp32", "tokens_per_second"),
    "longer than its job": ({"elapsed_s": 3600.0}, "seconds of the run, and of its job: 3600 and 20", "elapsed_s"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_figures_that_cannot_be_together(name: str, tmp_path: Path) -> None:
    result, why, empty = TOGETHER[name]
    made = written(tmp_path / "r1", result_of(PLAN, **result), steps_of(PLAN))
    ended(made, started_at=1.79e9, ended_at=1.79e9 + 20)
    [row], [state], found = parse(made), status(made), Run(made).result
    assert (row.outcome, state.outcome) == ("INVALID", "INVALID") and found is not None
    assert why in (row.invalid_reason or "") and found[empty] is None


def ended(made: Path, **more: Any) -> None:
    record = {"schema": 1, "run_id": made.name, "exit_code": 0, "stage": "done", **more}
    (made / "exit.json").write_text(json.dumps(record))


def test_the_end_of_another_run_is_none_of_this_one(tmp_path: Path) -> None:
    made = written(tmp_path / "r1", None, [])
    for more in ({"run_id": "other"}, {"started_at": 1.79e9, "ended_at": 1.79e9 - 7200}):
        ended(made, exit_code=7, **more)
        [state] = status(made)
        assert (state.outcome, state.exit_code, state.elapsed_s) == (None, None, None)  # it may be on its way yet
    # of a clock that was set back the times alone are wrong
    ended(made, exit_code=7, started_at=1.79e9, ended_at=1.79e9 - 100)
    [state] = status(made)
    assert (state.outcome, state.exit_code, state.elapsed_s) == ("FAILED", 7, None)


def test_a_last_loss_of_another_step_of_the_run_is_no_figure(tmp_path: Path) -> None:
    steps = steps_of(PLAN)
    [row] = parse(written(tmp_path / "r1", result_of(PLAN, loss_last=steps[4]["loss"]), steps))
    assert (row.outcome, row.loss_last) == ("INVALID", None)


Lines = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def _without_last_loss(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*steps[:-1], {**steps[-1], "loss": None}]


COMPARED_TO_NONE: dict[str, tuple[Lines, float]] = {
    "rounded as a table has it": (lambda steps: steps, 5.1004),
    "each third step": (lambda steps: steps[::3], 5.1),
    "one line alone is left": (lambda steps: steps[:1], 5.1),
    "no file": (lambda steps: [], 5.1),
    "the last step predicts no token": (_without_last_loss, 5.2),
    "an attempt before it, in the same file": (lambda steps: [*steps[:9], *steps], 5.1),
    "more than the end that is read": (lambda steps: [{**one, "more": "x" * 900} for one in steps], 5.1),
}


@pytest.mark.parametrize("name", COMPARED_TO_NONE)
def test_steps_that_tell_of_no_other_last_loss(name: str, tmp_path: Path) -> None:
    lines, loss = COMPARED_TO_NONE[name]
    [row] = parse(written(tmp_path / "r1", result_of(PLAN, loss_last=loss), lines(steps_of(PLAN))))
    assert (row.outcome, row.outcome_reason, row.loss_last) == ("COMPLETED", None, loss)


def test_a_last_line_that_is_torn_tells_of_no_last_loss(tmp_path: Path) -> None:
    made = written(tmp_path / "r1", result_of(PLAN), steps_of(PLAN))
    for cut in (1, 30):
        (made / "steps.jsonl").write_bytes((made / "steps.jsonl").read_bytes()[:-cut])
        [row] = parse(made)
        assert (row.outcome, row.loss_last) == ("COMPLETED", result_of(PLAN)["loss_last"])


EVALUATED = {"eval_loss": 5.5, "perplexity": 244.69, "evaluations": 1, "best_step": 12, "best_eval_loss": 5.5}
OF_EVALUATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a loss of which no exponential is known": ({**EVALUATED, "eval_loss": 5534.8}, "perplexity"),
    "a perplexity without a loss": ({"eval_loss": None, "perplexity": 7.0, "evaluations": 0}, "perplexity"),
    "the best of none": ({"best_step": 7, "evaluations": 0}, "best_step"),
    "a best step behind the last one": ({**EVALUATED, "best_step": 24000}, "best_step"),
    "a best loss above the last one": ({**EVALUATED, "best_eval_loss": 5.9}, "eval_loss"),
    "another than its line has": ({**EVALUATED, "eval_loss": 5.4, "perplexity": 221.4, "best_eval_loss": 5.4}, "eval_loss"),
    "an epoch of more than all steps": ({**EVALUATED, "epoch_time_s": 71122.0}, "epoch_time_s"),
    "parameters that nothing holds": (
        {"num_parameters": 1_000_000, "parameter_types": {"trained": ["float32"], "frozen": []}, "held_bytes": {"parameters": {"device": 0, "host": 2_000_000}}},
        "num_parameters",
    ),
    "a window longer than its run": ({"elapsed_s": 0.0, "measured_window_s": 0.37}, "elapsed_s"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_EVALUATIONS)
def test_what_contradicts_evaluations_epochs_and_bytes(name: str, tmp_path: Path) -> None:
    changed, empty = OF_EVALUATIONS[name]
    plan = changed_plan(data=["x"], epochs=0.5)
    made = written(tmp_path / "r1", result_of(PLAN, **changed), steps_of(PLAN), plan)
    line = {"step": 12, "eval_loss": 5.5, "perplexity": 244.69}
    (made / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    [row] = parse(made)
    assert row.outcome == "INVALID" and getattr(row, empty) is None
    honest = written(
        tmp_path / "r2", result_of(PLAN, **EVALUATED, epoch_time_s=24 * sum(TIMES) / 7), steps_of(PLAN), plan
    )
    (honest / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    [row] = parse(honest)
    assert (row.outcome, row.outcome_reason, row.best_step) == ("COMPLETED", None, 12)


def test_nodes_that_are_not_those_of_the_ranks_are_none(tmp_path: Path) -> None:
    plan = changed_plan(nodes=1000, tasks_per_node=1)
    [row] = parse(written(tmp_path / "r1", result_of(PLAN), steps_of(PLAN), plan))
    assert row.outcome == "INVALID" and row.nodes is None and row.tokens_per_second is not None


ENDED_EARLY = {"loss_first": 6255.6, "loss_last": 1.0, "trained_tokens": 10**6, "measured_steps": 14}


@pytest.mark.parametrize("name", ENDED_EARLY)
def test_a_run_that_was_ended_early_is_held_to_its_lines(name: str, tmp_path: Path) -> None:
    plan = changed_plan(steps=100_000, loss_floor_nats=None)
    lines = [{**row, "trained_tokens": 62, "more": "x" * 9000} for row in steps_of(PLAN)]  # a long file
    honest = result_of(PLAN, outcome="UNKNOWN", trained_tokens=744)

    def said(at: str, result: dict[str, Any], steps: list[dict[str, Any]]) -> str | None:
        found = read_records(RunPaths(written(tmp_path / at, result, steps, plan))).result
        assert found is not None
        return found.contradiction

    assert said("r1", honest, lines) is None
    assert name in (said("r2", {**honest, name: ENDED_EARLY[name]}, lines) or "")
    # A rank that is stopped between a step and its line has one step more.
    assert said("r3", honest, lines[:-1]) is None
