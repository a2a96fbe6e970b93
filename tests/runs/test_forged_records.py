"""Records that somebody wrote: a figure that cannot be is missing for every command, and no length keeps a reader busy."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest
from rendering import planned

from hpc_llm.api.answers import diagnose, report
from hpc_llm.api.handle import Run, status
from hpc_llm.api.rows import parse
from hpc_llm.cli import run as command

FIGURES = (
    "tokens_per_second", "tokens_per_second_per_gpu", "step_time_s_mean", "mfu", "peak_allocated_bytes", "measured_steps",
    "world_size", "model_tflops_per_gpu",
)  # fmt: skip
NEVER: list[Any] = [-1, -0.5, "12", True, [], {}, 1e300, 10**400, float("inf"), float("-inf"), float("nan")]


def folder(at: Path, result: dict[str, Any], **plan: Any) -> Path:
    """A run that completed, with four steps of one second."""
    at.mkdir(parents=True)
    defaults = {
        "method": "z3",
        "cluster": "here",
        "model": "tiny",
        "steps": 4,
        "task": "pretrain",
        "global_batch_size": 2,
    }
    experiment = {"schema": 1, "run_id": at.name, "plan": {**defaults, "sequence_length": 64, **plan}}
    (at / "experiment.json").write_text(json.dumps(experiment))
    (at / "exit.json").write_text(json.dumps({"schema": 1, "exit_code": 0, "stage": "done"}))
    (at / "result.json").write_text(json.dumps({"schema": 1, "outcome": "COMPLETED", "measured_steps": 4, **result}))
    steps = [
        {"step": i, "loss": 2.0, "step_time_s": 1.0, "tokens_per_second": 128.0, "time": 1.79e9 + i}
        for i in range(1, 5)
    ]
    (at / "steps.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    return at


@pytest.mark.parametrize("value", [*NEVER, 0, 1e12, 128.0], ids=lambda value: str(value)[:8])
def test_what_cannot_be_is_missing_in_parse_and_status(value: Any, tmp_path: Path) -> None:
    made = folder(tmp_path / "logs" / "r1", {"tokens_per_second": value, "mfu": value, "step_time_s_mean": 1.0})
    [row], [state] = parse(made), status(made)
    known = value == 128.0
    assert (row.tokens_per_second, state.tokens_per_second) == ((128.0, 128.0) if known else (None, None))
    assert row.mfu is None and row.step_time_s_mean == 1.0 and row.outcome == "COMPLETED"
    result = Run(made).result
    assert result is None or result["mfu"] is None


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("value", [-1, 1e300, "12", True], ids=str)
def test_no_figure_is_what_it_cannot_be(name: str, value: Any, tmp_path: Path) -> None:
    [row] = parse(folder(tmp_path / "r1", {name: value}))
    assert getattr(row, name) is None


@pytest.mark.parametrize("name", ["step_time_s", "tokens_per_second", "step"])
@pytest.mark.parametrize("value", [-1, 0, 1e300, "12", True], ids=str)
def test_nor_is_one_of_a_step(name: str, value: Any, tmp_path: Path) -> None:
    made = folder(tmp_path / "r1", {})
    (made / "result.json").unlink()
    steps = [json.loads(line) for line in (made / "steps.jsonl").read_text().splitlines()]
    (made / "steps.jsonl").write_text("".join(f"{json.dumps({**step, name: value})}\n" for step in steps))
    [row], [state] = parse(made), status(made)
    for rate in (row.tokens_per_second, state.tokens_per_second):
        assert rate is None or rate == 128.0
    assert row.step_time_s_mean in (None, 1.0) and state.step in (None, 0, 4)


@pytest.mark.parametrize("value", [-1, 0, 1.5, "12", None, 10**400], ids=lambda value: str(value)[:8])
def test_a_plan_s_counts_keep_nobody_from_reading_the_rest(value: Any, tmp_path: Path) -> None:
    counts = dict.fromkeys(("nodes", "gpus_per_node", "world_size", "micro_batch_size", "global_batch_size"), value)
    plan = planned("local", "z2", model="tiny").plan.flat() | counts
    made = folder(tmp_path / "r1", {"outcome": "OOM_DEVICE", "tokens_per_second": 7.0}, **plan)
    [row], [found] = parse(made), diagnose(made)
    assert row.nodes is None and row.global_batch_size is None and row.tokens_per_second == 7.0
    assert found.cause.id == "device_oom"


def test_long_texts_keep_no_report_busy_and_impossible_figures_are_not_in_it(tmp_path: Path) -> None:
    long = 200_000
    names = {"method": "m" * long, "cluster": "c" * long, "model": "b" * long, "precision": "p" * long}
    result = {
        "gpu": "g" * long,
        "tokens_per_second": 1e12,
        "mfu": 5.0,
        "outcome_reason": "r" * long,
        "task": "t" * long,
    }
    folder(tmp_path / "logs" / "r1", result, **names)
    folder(tmp_path / "logs" / "r2", {"tokens_per_second": 100.0}, **names)
    started = time.process_time()
    report([tmp_path / "logs"], output=tmp_path / "page")
    assert time.process_time() - started < 60
    rows = list(csv.DictReader((tmp_path / "page" / "results.csv").open()))
    assert {row["tokens_per_second"] for row in rows} <= {"", "100.0"} and {row["mfu"] for row in rows} == {""}
    assert max(len(row["method"]) for row in rows) <= 100


def test_what_is_wrong_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path / "logs" / "r1", {"tokens_per_second": -1})
    assert command(["status", "--logs", str(tmp_path / "logs")]) == 0
    said = capsys.readouterr()
    assert "result.json: its tokens_per_second is no possible figure" in said.err and "-1" not in said.out
