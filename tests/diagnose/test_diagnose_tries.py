"""Jobs that were queued again, and ranks that were stopped because another one had failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from test_diagnose_run import MOMENT, new_run

from hpc_llm.diagnosis import Diagnosis, diagnose_run
from hpc_llm.parsing import parse_paths
from hpc_llm.records.run import RunPaths

LAUNCHED = "hpc-llm: gn1, /envs/one/bin/python, modules none\n"
FAILED = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nKeyError: 'lr'\n"


def preempted(moment: float) -> str:
    at = datetime.fromtimestamp(moment).isoformat(timespec="seconds")
    return "".join(
        f"slurmstepd: error: *** {what} ON gn1 CANCELLED AT {at} DUE TO PREEMPTION ***\n"
        for what in ("JOB 3", "STEP 3.0")
    )


def outcome(run: RunPaths) -> str | None:
    [row] = parse_paths([run.root])
    return row.outcome


def test_the_last_try_counts(tmp_path: Path) -> None:
    run = new_run(tmp_path, restart_count=1)
    run.stderr.write_text(preempted(MOMENT - 30) + FAILED)
    assert (diagnose_run(run).cause.id, outcome(run)) == ("python_exception", "FAILED")


def test_the_last_try_may_be_taken_down_like_the_first(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=143, signal="TERM", restart_count=1)
    run.stderr.write_text(preempted(MOMENT - 30) + preempted(MOMENT + 50))
    found = diagnose_run(run)
    assert (found.cause.id, found.evidence[0].line, outcome(run)) == ("preempted", 3, "PREEMPTED")


@pytest.mark.parametrize("times", [1, 2])
def test_what_ended_an_earlier_try_is_not_told_of_the_last_one(times: int, tmp_path: Path) -> None:
    run = new_run(tmp_path, code=0, stage="done", restart_count=times)
    run.result.write_text(json.dumps({"outcome": "COMPLETED"}))
    run.stderr.write_text("".join(preempted(MOMENT - 30 * number) for number in range(times, 0, -1)))
    found = diagnose_run(run)
    said = "once" if times == 1 else f"{times} times"
    assert (found.cause.id, found.summary) == ("none", f"Its job was taken down and started again {said}, and went on.")


def test_what_takes_down_the_last_try_behind_its_training_is_told(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=0, stage="done")
    run.result.write_text(json.dumps({"outcome": "COMPLETED"}))
    run.stderr.write_text(preempted(MOMENT + 50))
    assert diagnose_run(run).summary.startswith("Training had come to its end before the job was ended (")


@pytest.mark.parametrize(("launched", "expected"), [(1, "PREEMPTED"), (2, "UNKNOWN")])
def test_without_a_record_of_its_end_it_may_run_again(tmp_path: Path, launched: int, expected: str) -> None:
    run = new_run(tmp_path, code=None)
    run.stdout.write_text(LAUNCHED * launched)
    run.stderr.write_text(preempted(MOMENT))
    assert outcome(run) == expected


def test_a_full_disk_is_why_there_is_no_record(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=None)
    run.stderr.write_text("job.sh: line 40: printf: write error: No space left on device\n")
    assert outcome(run) == "FAILED"


def test_what_slurm_answered_once_is_the_outcome(tmp_path: Path) -> None:
    run = new_run(tmp_path, code=None)
    kept = {
        "outcome": "NODE_FAIL",
        "reason": "a node failed (gn1)",
        "state": "NODE_FAIL",
        "record": {"state": "NODE_FAIL", "nodes": "gn1"},
    }
    run.submitit.mkdir()
    (run.submitit / "final.json").write_text(json.dumps(kept))
    [row] = parse_paths([run.root])
    assert (row.outcome, row.outcome_reason) == ("NODE_FAIL", "a node failed (gn1)")


EXITED = "srun: error: gn1: task 1: Exited with exit code 7\n"
STOPPED = "slurmstepd: error: *** STEP 3.0 ON gn1 CANCELLED AT 2026-01-01T00:00:00 ***\n"


def test_srun_stops_the_others_for_the_task_that_failed(diagnose: Callable[[str | bytes], Diagnosis]) -> None:
    found = diagnose(EXITED + STOPPED)
    assert (found.cause.id, found.evidence[0].line, found.retry) == ("unknown", 1, False)
    assert diagnose(STOPPED + EXITED).cause.id == "cancelled"


def test_the_amounts_of_memory_are_found_in_any_line(diagnose: Callable[[str | bytes], Diagnosis]) -> None:
    first = "slurmstepd: error: Exceeded job memory limit\n"
    second = "slurmstepd: error: StepId=3.0 exceeded memory limit (3221225472 > 104857600), being killed\n"
    expected = "It used 3.0 GiB, and 100 MiB were allowed."
    assert diagnose(first + second).summary == diagnose(second + first).summary == expected


def test_the_node_to_leave_out_is_the_one_that_failed(diagnose: Callable[[str | bytes], Diagnosis]) -> None:
    survivor = "slurmstepd-gn1: error: *** STEP 3.0 ON gn1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***\n"
    lost = "srun: error: Node failure on gn2\n"
    assert diagnose(survivor + lost).remedy == diagnose(lost + survivor).remedy
    assert "exclude=gn2" in diagnose(survivor + lost).remedy


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_job_prints_of_another_says_nothing_of_its_own_end(tmp_path: Path, code: int) -> None:
    run = new_run(tmp_path, code=code)
    expected = diagnose_run(run).cause.id, outcome(run)
    run.stdout.write_text("Job ID: 71001\nCluster: aurora\nState: COMPLETED (exit code 0)\nNodes: 1\n")
    assert (diagnose_run(run).cause.id, outcome(run)) == expected
