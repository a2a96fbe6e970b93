"""From the records of a run to its outcome, case by case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.run import Outcome, RunPaths, Stop, write_json
from hpc_llm.runs.evidence import Evidence
from hpc_llm.runs.progress import Progress, read_progress
from hpc_llm.runs.slurm_records import JobRecord
from hpc_llm.runs.verdict import by_folder, by_record, conclusive


class Folder:
    """A run folder to fill with records."""

    def __init__(self, root: Path) -> None:
        self.run = RunPaths(root)
        write_json(self.run.experiment, {"plan": {}})

    def exit(self, code: int, **more: Any) -> Folder:
        write_json(self.run.exit, {"exit_code": code, "signal": None, "stage": "done", **more})
        return self

    def result(self, outcome: str, **more: Any) -> Folder:
        write_json(self.run.result, {"outcome": outcome, **more})
        return self

    def failure(self, rank: int, outcome: str, time: float = 1.0, message: str = "boom", type: str = "Error") -> Folder:
        record = {"rank": rank, "time": time, "type": type, "message": message, "outcome": outcome}
        write_json(self.run.failure(rank), record)
        return self

    def cancelled(self) -> Folder:
        write_json(self.run.cancelled, {})
        return self

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.run)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "run")


def job(state: str, exit_code: int = 0, signal: int = 0, **more: Any) -> JobRecord:
    return JobRecord(state=state, exit_code=exit_code, signal=signal, **more)


def test_a_whole_result_and_a_clean_exit_need_no_scheduler(folder: Folder) -> None:
    verdict = conclusive(folder.exit(0).result("COMPLETED").evidence)
    assert verdict is not None and verdict.outcome is Outcome.COMPLETED and verdict.reason is None


def test_invalid_is_the_worker_s_word(folder: Folder) -> None:
    verdict = conclusive(folder.exit(0).result("INVALID", invalid_reason="loss is NaN").evidence)
    assert verdict is not None and (verdict.outcome, verdict.reason) == (Outcome.INVALID, "loss is NaN")


@pytest.mark.parametrize("stop", list(Stop))
def test_a_stop_before_training_is_a_failure_with_its_reason(folder: Folder, stop: Stop) -> None:
    verdict = conclusive(folder.exit(stop.value, stage="prelude").evidence)
    assert verdict is not None and (verdict.outcome, verdict.reason) == (Outcome.FAILED, stop.meaning)


def test_an_oom_of_the_device_is_known_from_any_rank(folder: Folder) -> None:
    folder.exit(1).failure(0, "FAILED", time=2.0, message="connection closed").failure(3, "OOM_DEVICE", time=1.0)
    verdict = conclusive(folder.evidence)
    assert verdict is not None and verdict.outcome is Outcome.OOM_DEVICE
    assert verdict.reason == "rank 3: Error: boom"


def test_a_failure_of_a_rank_alone_asks_the_scheduler_why(folder: Folder) -> None:
    evidence = folder.exit(1).failure(0, "FAILED").result("FAILED").evidence
    assert conclusive(evidence) is None
    oom = by_record(evidence, job("FAILED", 1, out_of_memory=True))
    assert oom is not None and oom.outcome is Outcome.OOM_HOST
    plain = by_record(evidence, job("FAILED", 1))
    assert plain is not None and (plain.outcome, plain.reason) == (Outcome.FAILED, "rank 0: Error: boom")


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("TIMEOUT", Outcome.TIMEOUT),
        ("DEADLINE", Outcome.TIMEOUT),
        ("NODE_FAIL", Outcome.NODE_FAIL),
        ("BOOT_FAIL", Outcome.NODE_FAIL),
        ("PREEMPTED", Outcome.PREEMPTED),
        ("CANCELLED", Outcome.CANCELLED),
        ("OUT_OF_MEMORY", Outcome.OOM_HOST),
        ("FAILED", Outcome.FAILED),
        ("COMPLETED", Outcome.FAILED),  # without a result
        ("A_STATE_OF_THE_FUTURE", Outcome.FAILED),
    ],
)
def test_each_final_state_is_an_outcome(folder: Folder, state: str, outcome: Outcome) -> None:
    verdict = by_record(folder.evidence, job(state))
    assert verdict is not None and verdict.outcome is outcome


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "REQUEUED", "COMPLETING", "SUSPENDED", "CONFIGURING"])
def test_a_live_job_has_no_outcome_whatever_an_earlier_try_left(folder: Folder, state: str) -> None:
    assert by_record(folder.exit(143, signal="TERM").evidence, job(state)) is None


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "NODE_FAIL", "FAILED"])
def test_a_result_that_was_already_whole_is_not_taken_back(folder: Folder, state: str) -> None:
    verdict = by_record(folder.exit(139).result("COMPLETED").evidence, job(state, 1))
    assert verdict is not None and verdict.outcome is Outcome.COMPLETED
    assert verdict.reason == "the result was already written when the job ended with exit code 139"


def test_a_result_beside_a_failed_rank_is_a_failure(folder: Folder) -> None:
    verdict = by_record(folder.exit(1).result("COMPLETED").failure(2, "FAILED").evidence, job("FAILED", 1))
    assert verdict is not None and verdict.outcome is Outcome.FAILED


def test_a_missing_output_folder_is_named(folder: Folder) -> None:
    verdict = by_record(folder.evidence, job("FAILED", 0, 53))
    assert verdict is not None and "output file could not be opened" in (verdict.reason or "")


def test_a_dependency_that_failed_is_named(folder: Folder) -> None:
    verdict = by_record(folder.evidence, job("CANCELLED", reason="Dependency"))
    assert verdict is not None and "did not succeed" in (verdict.reason or "")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-tw1: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed",
        "slurmstepd: error: StepId=24.0 exceeded memory limit (138972 > 51200), being killed",
    ],
)
def test_slurmstepd_s_own_words_tell_an_oom_of_the_host(folder: Folder, line: str) -> None:
    folder.run.stderr.write_text("x" * 10**5 + f"\n{line}\nbye\n")
    assert by_folder(folder.exit(137).evidence).outcome is Outcome.OOM_HOST


def test_a_program_s_own_words_do_not(folder: Folder) -> None:
    folder.run.stderr.write_text("RuntimeError: oom-kill exceeded memory limit\n")
    assert by_folder(folder.exit(1).evidence).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("lasted", "limit", "outcome"),
    [
        (300, 300, Outcome.TIMEOUT),
        (299, 300, Outcome.TIMEOUT),
        (100, 300, Outcome.CANCELLED),
        (5, 60, Outcome.CANCELLED),
    ],
)
def test_without_a_scheduler_a_signal_at_the_limit_is_a_timeout(
    folder: Folder, lasted: int, limit: int, outcome: Outcome
) -> None:
    folder.exit(143, signal="TERM", started_at=1000, ended_at=1000 + lasted, time_limit_s=limit)
    assert by_folder(folder.evidence).outcome is outcome


def test_a_rank_that_was_told_to_stop_is_not_what_failed(folder: Folder) -> None:
    folder.exit(137).failure(0, "UNKNOWN", type="SIGTERM").result("UNKNOWN", outcome_reason="rank 0: SIGTERM")
    verdict = by_record(folder.evidence, job("FAILED", 9))
    assert verdict is not None and verdict.outcome is Outcome.FAILED
    assert verdict.reason == "exit code 137: a process was ended by SIGKILL"
    folder.failure(1, "FAILED", time=2.0)
    assert by_folder(folder.evidence).reason == "rank 1: Error: boom"


def test_srun_names_the_task_that_failed_first(folder: Folder) -> None:
    folder.run.stderr.write_text(
        "srun: error: tw1: task 1: Exited with exit code 7\nsrun: error: tw1: task 0: Exited with exit code 143\n"
    )
    verdict = by_folder(folder.exit(143).failure(0, "UNKNOWN", type="SIGTERM").evidence)
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "task 1: Exited with exit code 7 (tw1)")
    again = by_folder(folder.exit(3, restart_count=1).evidence)  # srun's words are of the first try
    assert again.reason == "exit code 3"


def test_a_script_that_was_told_to_stop_was_cancelled_though_its_ranks_say_so(folder: Folder) -> None:
    folder.exit(143, signal="TERM").failure(0, "UNKNOWN", type="SIGTERM")
    assert by_folder(folder.evidence).outcome is Outcome.CANCELLED


def test_a_reason_is_one_line(folder: Folder) -> None:
    folder.exit(1).failure(0, "FAILED", message="1 validation error\nbucket\n  not a number")
    assert by_folder(folder.evidence).reason == "rank 0: Error: 1 validation error bucket not a number"


def test_a_cancelled_run_is_cancelled_however_it_exits(folder: Folder) -> None:
    assert (
        by_folder(folder.exit(1, signal="TERM").failure(0, "FAILED").cancelled().evidence).outcome is Outcome.CANCELLED
    )


def test_progress_reads_the_end_of_the_file_alone(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    lines = [
        {"step": k, "tokens_per_second": 100.0 * (1 + k % 2), "step_time_s": 1 / (1 + k % 2), "warmup": k < 5}
        for k in range(1, 50001)
    ]
    steps.write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 50001, "tok')
    progress = read_progress(steps)
    assert progress.step == 50000
    # Two kinds of step, 100 tokens each, one and half a second long: 200 tokens in 1.5 s.
    assert progress.tokens_per_second == pytest.approx(200 / 1.5, rel=0.01)


def test_progress_of_nothing_and_of_warmup(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    assert read_progress(steps) == Progress(None, None)
    steps.write_text('{"step": 1, "tokens_per_second": 5.0, "step_time_s": 1.0, "warmup": true}\n')
    assert read_progress(steps) == Progress(1, None)
    steps.write_text('not json\n[1]\n{"step": 2, "tokens_per_second": null, "step_time_s": null, "warmup": false}\n')
    assert read_progress(steps) == Progress(2, None)
