"""The result of a run that answered queries is held to itself, its plan and its batches; an honest one keeps all of its figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpc_llm.api.rows import parse
from hpc_llm.records.agreement import contradictions
from hpc_llm.records.answering import LATENCIES
from hpc_llm.worker.answers import AnsweredBatch, AnsweredQuery, Answers
from hpc_llm.worker.tasks.vllm_bench import figures

PLAN: dict[str, Any] = {
    "task": "infer", "cluster": "local", "method": "ddp", "model": "tiny", "nodes": 1, "gpus_per_node": 0, "tasks_per_node": 1,
    "world_size": 1, "data_parallel": 1, "tensor_parallel": 1, "micro_batch_size": 2, "gradient_accumulation_steps": 1,
    "global_batch_size": 2, "sequence_length": 62, "steps": 6, "warmup_steps": 2, "precision": "bf16", "queries": 7,
    "new_tokens": 16, "prompt_tokens": None, "stop_at_end": False, "engine": "plain",
}  # fmt: skip
SECONDS = [0.7, 1.3, 0.5, 0.9]
FIRST = [0.08, 0.14, 0.07, 0.06]


class _Window:
    elapsed_s = sum(SECONDS) + 0.01


def batches(seconds: list[float] = SECONDS, last: int = 1) -> list[AnsweredBatch]:
    sizes = [2] * (len(seconds) - 1) + [last]
    made = []
    for number, (time_s, first, size) in enumerate(zip(seconds, FIRST, sizes, strict=True), start=3):
        queries = tuple(AnsweredQuery(2 * number + place, 44, 16, first, time_s) for place in range(size))
        made.append(AnsweredBatch(number, False, time_s, first, queries))
    return made


def result_of(plan: dict[str, Any] = PLAN, everyones: list[AnsweredBatch] | None = None, **more: Any) -> dict[str, Any]:
    """What the worker writes."""
    answers = Answers(window=_Window(), batches=batches())  # type: ignore[arg-type]
    answers.everyones, answers.longest_s = everyones or batches(), _Window.elapsed_s
    sizes = (
        "world_size data_parallel tensor_parallel micro_batch_size global_batch_size sequence_length precision".split()
    )
    return {
        "schema": 1, "outcome": "COMPLETED", "gpu": None, "hardware": {"gpu": None}, **{name: plan[name] for name in sizes},
        "warmup_steps": 2, "num_parameters": 524928, "trainable_parameters": 0, "elapsed_s": 12.0,
        "measured_window_s": _Window.elapsed_s, "peak_host_bytes": 397111296, **answers.figures(plan["world_size"]), **more,
    }  # fmt: skip


def written(at: Path, result: dict[str, Any]) -> Path:
    at.mkdir()
    rows: list[dict[str, Any]] = [{"step": number, "step_time_s": 0.8, "warmup": True} for number in (1, 2)]
    rows += [
        {
            "step": one.number, "step_time_s": one.time_s, "time_to_first_token_s": one.first_token_s, "warmup": False,
            "prompt_tokens": one.prompt_tokens, "generated_tokens": one.generated_tokens, "queries": len(one.queries),
        }
        for one in batches()
    ]  # fmt: skip
    (at / "experiment.json").write_text(json.dumps({"schema": 1, "run_id": at.name, "plan": PLAN}))
    (at / "exit.json").write_text(json.dumps({"schema": 1, "exit_code": 0, "stage": "done"}))
    (at / "result.json").write_text(json.dumps(result))
    (at / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return at


def test_an_honest_result_keeps_all_figures(tmp_path: Path) -> None:
    result = result_of()
    [row] = parse(written(tmp_path / "r1", result))
    assert (row.outcome, row.outcome_reason) == ("COMPLETED", None)
    for name in ("tokens_per_second", "latency_s_p50", "queries_per_second", "total_queries", "measured_steps"):
        assert getattr(row, name) == result[name] is not None


def test_ranks_with_batches_of_their_own_agree() -> None:
    """Those of both are told together, the steps of the first alone."""
    plan = {**PLAN, "world_size": 2, "tasks_per_node": 2, "data_parallel": 2, "global_batch_size": 4, "queries": 14}
    assert contradictions(plan, result_of(plan, [*batches(), *batches()])) == []
    early = {**PLAN, "stop_at_end": True}
    assert contradictions(early, result_of(early)) == []


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "ranks": ({"world_size": 8}, "world_size"),
    "a GPU": ({"gpu": "NVIDIA H100 80GB HBM3"}, "gpu"),
    "memory of no GPU": ({"peak_allocated_bytes": 7 << 30}, "peak_allocated_bytes"),
    "queries": ({"total_queries": 7000}, "total_queries"),
    "queries a second": ({"queries_per_second": 2758.1}, "queries_per_second"),
    "batches": ({"measured_steps": 4000}, "measured_steps"),
    "a rate of each GPU": ({"tokens_per_second_per_gpu": 165486.9}, "tokens_per_second_per_gpu"),
    "generated tokens a second": ({"generated_tokens_per_second": 44129.8}, "generated_tokens_per_second"),
    "prompt tokens a second": ({"prompt_tokens_per_second": 1.5}, "prompt_tokens_per_second"),
    "a percentile of the batches": ({"step_time_s_p50": 616.0}, "step_time_s_p50"),
    "a percentile of the answers": ({"latency_s_p50": 1283.5}, "latency_s_p50"),
    "a small percentile of the answers": ({"latency_s_p99": 1.29}, "latency_s_p99"),
    "a mean of the answers": ({"latency_s_mean": 0.7}, "latency_s_mean"),
    "a first token": ({"time_to_first_token_s_p50": 0.072}, "time_to_first_token_s_p50"),
    "tokens of prompts": ({"prompt_tokens": 309, "prompt_tokens_per_second": 309 / 3.41}, "prompt_tokens"),
    "more tokens than are asked for": ({"generated_tokens": 7000}, "generated_tokens"),
    "the whole time": ({"total_time_s": 1e-3}, "total_time_s"),
    "the time of the run": ({"elapsed_s": 0.0}, "elapsed_s"),
    "a loss": ({"loss_first": 7.0}, "loss_first"),
    "memory of no node": ({"peak_host_bytes": 1 << 40, "hardware": {"gpu": None, "host_memory_bytes": 1 << 34}}, "peak_host_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_contradicts_is_no_figure(name: str, tmp_path: Path) -> None:
    changed, empty = FORGED[name]
    [row] = parse(written(tmp_path / "r1", result_of(**changed)))
    assert row.outcome == "INVALID" and "contradict" in (row.invalid_reason or "")
    assert getattr(row, empty) in (None, PLAN.get(empty))


def test_a_task_that_measures_nothing_has_no_figures() -> None:
    for task in ("prepare", "tune"):
        assert contradictions({"task": task}, {"outcome": "COMPLETED", "world_size": 1, "elapsed_s": 3.0}) == []
        [(why, names)] = contradictions({"task": task}, {"outcome": "COMPLETED", "tokens_per_second": 9e6})
        assert "measures nothing" in why and names == ("tokens_per_second",)


def test_percentiles_of_vllm_are_those_of_its_batches() -> None:
    """And its times are by a clock of its own, so nothing holds them to that of the run."""
    seconds = [0.5, 0.51, 0.52, 0.53]
    plan = SimpleNamespace(
        inference=SimpleNamespace(prompt_tokens=24, new_tokens=16), batch=SimpleNamespace(micro_batch_size=4),
        parallel=SimpleNamespace(gpus_per_node=0),
    )  # fmt: skip
    base = {
        name: value for name, value in result_of(elapsed_s=0.1, measured_window_s=None).items() if name not in LATENCIES
    }
    own = {"prefill_time_s", "decode_time_s", "prefill_tokens_per_second", "decode_tokens_per_second"}
    result = {name: value for name, value in base.items() if name not in own} | figures(plan, seconds)  # type: ignore[arg-type]
    flat = {**PLAN, "engine": "vllm", "micro_batch_size": 4, "global_batch_size": 4, "queries": 16, "prompt_tokens": 24}
    honest = {**result, "micro_batch_size": 4, "global_batch_size": 4}
    assert contradictions(flat, honest) == []
    [(why, _)] = contradictions(flat, {**honest, "latency_s_p90": 0.52})
    assert "latency_s_p90" in why
