"""Our own run folders, whole and cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_llm.parsing import parse_paths, parse_steps
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.collect import own_runs

PLAN = {
    "task": "pretrain", "cluster": "mi210", "method": "z3o", "model": "llama-1b", "nodes": 1, "gpus_per_node": 2,
    "world_size": 2, "micro_batch_size": 4, "gradient_accumulation_steps": 1, "global_batch_size": 8,
    "sequence_length": 100, "precision": "bf16", "warmup_steps": 2,
}  # fmt: skip


SUBMITTED = {"schema": 1, "scheduler": "slurm", "job_id": "4711", "submitted_at": "2026-01-01T12:00:00+00:00"}
BEGAN = 1_780_000_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "logs" / "20260101-120000-mi210-z3o-llama-1b-ab12"
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text(json.dumps({"schema": 1, "run_id": folder.name, "plan": PLAN}))
    records = [
        {"step": i, "loss": 7 - i, "step_time_s": 10.0 if i <= 2 else 0.5, "peak_allocated_bytes": i, "warmup": i <= 2}
        for i in range(1, 6)
    ]
    (folder / "steps.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + '{"step": 6, "lo')
    return folder


def only(path: Path):
    rows = list(parse_paths([path]))
    assert len(rows) == 1
    return rows[0]


def test_result_of_the_worker_counts(run: Path):
    result = {"tokens_per_second": 1234.5, "outcome": "COMPLETED", "gpu": "MI210", "started_at": "2026-01-01T12:00:00+00:00",
              "loss_last": 2.5, "schema": 1, "step_times_s": [1.0]}  # fmt: skip
    (run / "result.json").write_text(json.dumps(result))
    (run / "submission.json").write_text(json.dumps(SUBMITTED))
    found = only(run)
    assert (found.run_id, found.format, found.cluster, found.method) == (run.name, "hpc-llm", "mi210", "z3o")
    assert (found.tokens_per_second, found.gpu, found.outcome, found.loss_last) == (1234.5, "MI210", "COMPLETED", 2.5)
    assert (found.job_id, found.started_at) == ("4711", "2026-01-01T12:00:00+00:00")


def test_without_a_result_the_steps_after_the_warmup_count(run: Path):
    found = only(run)
    assert (found.step_time_s_mean, found.measured_steps, found.loss_first, found.loss_last) == (0.5, 3, 6, 2)
    assert found.tokens_per_second == 8 * 100 / 0.5
    assert found.tokens_per_second_per_gpu == 8 * 100 / 0.5 / 2
    assert found.outcome == "UNKNOWN"


def test_steps_of_a_run_and_a_half_written_last_line(run: Path):
    found = list(parse_steps([run]))
    assert [s.step for s in found] == [1, 2, 3, 4, 5]
    assert found[2].step_time_s == 0.5
    assert found[0].run_id == run.name


@pytest.mark.parametrize(
    ("left", "outcome", "reason"),
    [
        (
            {"exit_code": 72, "stage": "prelude", "reason": "module x failed to load"},
            "FAILED",
            "module x failed to load",
        ),
        ({"exit_code": 72}, "FAILED", "a module failed to load"),
        ({"exit_code": 1}, "FAILED", "exit code 1"),
        (
            {"exit_code": 143, "signal": "TERM", "started_at": BEGAN, "ended_at": BEGAN + 70, "time_limit_s": 60},
            "TIMEOUT",
            "time limit",
        ),
        (
            {"exit_code": 143, "signal": "TERM", "started_at": BEGAN, "ended_at": BEGAN + 7, "time_limit_s": 60},
            "CANCELLED",
            "SIGTERM",
        ),
        ({"exit_code": 0}, "UNKNOWN", "no result"),
    ],
)
def test_exit_record(run: Path, left: dict, outcome: str, reason: str):
    (run / "exit.json").write_text(json.dumps(left))
    found = only(run)
    assert found.outcome == outcome
    assert reason in found.outcome_reason


def test_messages_in_the_output_are_heard(run: Path):
    (run / "exit.json").write_text(json.dumps({"exit_code": 1}))
    (run / "log.err").write_text(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks\n"
    )
    assert only(run).outcome == "OOM_HOST"


def test_a_rank_that_was_told_to_stop_does_not_say_why(run: Path):
    told = {"outcome": "UNKNOWN", "outcome_reason": "rank 0: SIGTERM: stopped by SIGTERM after step 4 of 50"}
    (run / "result.json").write_text(json.dumps(told))
    assert only(run).outcome_reason == told["outcome_reason"]
    (run / "exit.json").write_text(json.dumps({"exit_code": 1}))
    (run / "log.err").write_text("E1121 04:38:46 1442 api.py:986] failed (exitcode: -9) local_rank: 1 (pid: 1469)\n")
    found = only(run)
    assert (found.outcome, "exitcode: -9" in (found.outcome_reason or "")) == ("FAILED", True)
    left = {"exit_code": 143, "signal": "TERM", "started_at": BEGAN, "ended_at": BEGAN + 70, "time_limit_s": 60}
    (run / "exit.json").write_text(json.dumps(left))
    assert only(run).outcome == "TIMEOUT"


def test_runs_are_found_in_a_folder_of_runs(run: Path):
    (run.parent / "notes.txt").write_text("nothing\n")
    rows = list(parse_paths([run.parent]))
    assert [r.format for r in rows] == ["hpc-llm", "unknown"]


@pytest.mark.parametrize("name", ["experiment.json", "result.json", "exit.json", "submission.json", "steps.jsonl"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"plan": 3, "outcome": null}', "\x00\xff"])
def test_broken_files_never_raise(run: Path, name: str, content: str):
    (run / name).write_text(content)
    rows = list(parse_paths([run]))
    assert len(rows) == 1
    list(parse_steps([run]))


def test_a_try_that_fell_with_its_search_says_so(tmp_path: Path) -> None:
    search = RunPaths(tmp_path / "s")
    one = search.search_try(1)
    left = {"exit_code": 143, "signal": "TERM", "started_at": BEGAN, "ended_at": BEGAN + 7}
    for run, task in ((search, "tune"), (one, "pretrain")):
        plan = {
            "task": task,
            "cluster": "local",
            "scheduler": "local",
            "method": "z3",
            "letters": "z3",
            "model": "tiny",
            "world_size": 1,
        }
        write_json(run.experiment, {"schema": 1, "run_id": run.run_id, "plan": plan})
        write_json(run.exit, left)
    write_json(search.cancelled, {"schema": 1, "cancelled_at": "2026-01-01T12:00:00+00:00"})
    rows = list(parse_paths([search.root]))
    assert [(row.try_, row.outcome, row.outcome_reason) for row in rows[-1:]] == [
        (1, "CANCELLED", "cancelled with hpc-llm cancel")
    ]
    of_try = next(run for run in own_runs([search.root]) if run.of_search)
    assert of_try.diagnosis["cause"] == "cancelled" and "SIGTERM" not in str(of_try.diagnosis)


def test_the_row_of_a_search_has_its_method_and_that_of_a_preparation_none(tmp_path: Path) -> None:
    for task, method in (("tune", "z3+lora"), ("prepare", None)):
        run = RunPaths(tmp_path / task)
        plan = {
            "task": task,
            "cluster": "delta",
            "method": "z3+lora",
            "letters": "z3+lora",
            "model": "tiny",
            "world_size": 8,
            "micro_batch_size": 1,
        }
        write_json(run.experiment, {"schema": 1, "run_id": task, "plan": plan})
        write_json(run.result, {"schema": 1, "outcome": "COMPLETED"})
        row = only(run.root)
        assert (row.task, row.method, row.kind, row.micro_batch_size) == (task, method, None, None)


@pytest.mark.parametrize("task", ["prepare", "tune"])
def test_what_measures_nothing_has_no_batch_of_a_training_however_it_ended(tmp_path: Path, task: str) -> None:
    """The result of a run that failed is written by what trainings share, with all that its plan says of a batch."""
    run = RunPaths(tmp_path / "r")
    plan = {"task": task, "cluster": "local", "method": "z3", "model": "tiny", "world_size": 1}
    of_batch = dict.fromkeys(("micro_batch_size", "gradient_accumulation_steps", "global_batch_size"), 1)
    more = {"sequence_length": 64, "precision": "bf16", "warmup_steps": 0, "measured_steps": 0, "tensor_parallel": 1}
    write_json(run.experiment, {"schema": 1, "run_id": "r", "plan": plan})
    rows = []
    for outcome, said in (("COMPLETED", {}), ("FAILED", {**of_batch, **more})):
        result = {"schema": 1, "outcome": outcome, "world_size": 1, "elapsed_s": 3.0, **said}
        write_json(run.result, result)
        rows.append(only(run.root))
    completed, failed = rows
    assert (failed.outcome, failed.world_size, failed.elapsed_s) == ("FAILED", 1, 3.0)
    for name in (*of_batch, *more):
        assert getattr(failed, name) is getattr(completed, name) is None, name
