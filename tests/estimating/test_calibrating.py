"""Calibrating from folders of runs, through the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import time_points
from rights import needs_root

from hpc_llm.api import calibrate, compared, estimate
from hpc_llm.api.calibrating import calibration_file, calibration_of
from hpc_llm.errors import Notice, RequestError
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths

SLOWER = 1.7
COUNT = 12


def points() -> list[time_points.Point]:
    return [one for one in time_points.points() if one.kind == "H100"][:COUNT]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def finished(logs: Path, name: str, point: time_points.Point, **changes: Any) -> RunPaths:
    """A run as it lies there after its end, on a machine that is slower throughout."""
    run = RunPaths(logs / name)
    plan = {**point.planned.to_dict(), **changes.get("plan", {})}
    result = {
        "schema": 1, "outcome": "COMPLETED", "gpu": point.gpu, "engine": point.row["engine"],
        "step_time_s_p50": point.step_s * SLOWER, "versions": {"torch": point.row["torch"]},
    } | changes.get("result", {})  # fmt: skip
    write_json(run.experiment, {"schema": 1, "run_id": name, "plan": plan})
    write_json(run.result, result)
    write_json(run.root / "exit.json", {"schema": 1, "exit_code": 0, "stage": "done"})
    return run


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for number, point in enumerate(points()):
        finished(tmp_path / "logs", f"run-{number:02}", point)
    return tmp_path / "logs"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hpc_llm", *words], capture_output=True, text=True, env=os.environ.copy(), check=False
    )


def test_runs_are_fitted_kept_and_used(logs: Path, own_folder: Path) -> None:
    before = compared(logs)
    done = command("estimate", "--calibrate", str(logs), "--json")
    assert done.returncode == 0, done.stderr
    [made] = json.loads(done.stdout)["calibrations"]
    assert made["cluster"] == "local" and made["gpus"] == ["H100"] and len(made["runs"]) == COUNT
    assert made["versions"]["torch"].startswith("2.") and made["date"].startswith("20")
    kept = own_folder / "hpc-llm" / "calibration" / "local.json"
    assert made["file"] == str(kept) and json.loads(kept.read_text())["values"] == made["values"]
    after = compared(logs)

    def off(rows: Any) -> float:
        return sorted(abs(row.predicted_s / row.measured_s - 1) for row in rows)[COUNT // 2]

    assert off(before) > 0.25
    assert off(after) < off(before) / 2


def test_the_record_is_printed_and_nothing_is_kept(logs: Path, own_folder: Path) -> None:
    done = command("estimate", "--record", str(logs))
    assert done.returncode == 0, done.stderr
    assert all(f"run-{number:02}" in done.stdout for number in range(COUNT))
    assert "(-" in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
    assert not own_folder.exists()


def test_an_estimate_says_how_long_it_takes() -> None:
    done = command("estimate", "--cluster", "taiwania2", "--method", "z3", "--steps", "1000")
    assert done.returncode == 0, done.stderr
    assert "GPU-hours" in done.stdout and "--time 0" in done.stdout
    assert "no run on V100" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_no_limit_is_advised_that_the_site_refuses() -> None:
    words = "--cluster taiwania2 --method z3o --steps 200000 --partition gtest".split()
    done = command("estimate", *words)
    assert done.returncode == 0, done.stderr
    assert "--time" not in done.stdout and "the longest time limit there: 00:30:00" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_kept_calibration_changes_the_estimate_of_its_cluster_alone() -> None:
    def rate(cluster: str) -> float:
        [found] = estimate(cluster=cluster, method="z3", model="llama2-7b")
        assert found.time is not None
        return found.time.tokens_per_second

    before = {name: rate(name) for name in ("taiwania2", "mi210")}
    values = {"launch_s": 1e-4}
    write_json(
        calibration_file("taiwania2"),
        {"cluster": "taiwania2", "values": values, "gpus": ["V100"], "offloaded": False, "several_nodes": False,
         "spread": 1.3, "runs": ["a", "b", "c"], "date": "2026-11-22", "versions": {}},
    )  # fmt: skip
    assert rate("taiwania2") < before["taiwania2"] / 2
    assert rate("mi210") == before["mi210"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"values": {"matmul": 1e400}}', '{"spread": "wide"}'])
def test_a_damaged_calibration_is_told_and_left_aside(text: str) -> None:
    file = calibration_file("delta")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.warns(Notice, match=r"delta\.json is no calibration"):
        assert calibration_of("delta") is None


STRANGE: list[dict[str, Any]] = [
    {"result": {"outcome": "FAILED"}},
    {"result": {"step_time_s_p50": -1}},
    {"result": {"step_time_s_p50": "fast"}},
    {"result": {"gpu": None}},
    {"plan": {"cluster": "../../evil"}},
    {"plan": {"batch": {"micro_batch_size": "x", "gradient_accumulation_steps": 1, "global_batch_size": 1, "sequence_length": 1}}},
    {"plan": {"batch": {"micro_batch_size": 10**400, "gradient_accumulation_steps": 1, "global_batch_size": 1, "sequence_length": 1}}},
    {"plan": {"parallel": {"nodes": 1, "gpus_per_node": 1, "tasks_per_node": 0, "world_size": 0, "data": 0}}},
    {"plan": {"model": None}},
    {"plan": {"cluster": 7}},
]  # fmt: skip


def test_runs_that_tell_nothing_spoil_nothing(logs: Path, own_folder: Path) -> None:
    for number, changes in enumerate(STRANGE):
        finished(logs, f"strange-{number}", points()[0], **changes)
    [made] = calibrate(logs)
    assert set(made.calibration.runs) == {f"run-{number:02}" for number in range(COUNT)}
    assert [path.name for path in own_folder.rglob("*.json")] == ["local.json"]


@pytest.mark.parametrize("seconds", [7e6, 3e9, 1e-300])
def test_what_no_estimate_would_read_does_not_replace_what_is_kept(
    seconds: float, logs: Path, own_folder: Path
) -> None:
    [made] = calibrate(logs)
    before = made.file.read_bytes()
    for number in range(3):
        finished(logs, f"off-{number}", points()[number], result={"step_time_s_p50": seconds})
    with pytest.raises(RequestError, match=r"is off-\d, .* nothing was kept"):
        calibrate(logs)
    assert made.file.read_bytes() == before


def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, own_folder: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    finished(tmp_path / "one", "run", points()[0])
    for words, told in (
        (["--calibrate", str(empty)], "of 0 runs none can be used"),
        (["--record", str(tmp_path / "nowhere")], "is no folder"),
        (["--calibrate", str(tmp_path / "one")], "a calibration needs 3"),
        (["--calibrate", str(tmp_path / "one"), "--method", "z3"], "leave --method out"),
        (["--calibrate", str(tmp_path / "one"), "--record", str(tmp_path / "one")], "leave --record out"),
    ):
        done = command("estimate", *words)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert told in " ".join(done.stderr.split())
    assert not own_folder.exists()


def test_a_python_program_gets_the_same_errors(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="none can be used"):
        calibrate(tmp_path)


def test_runs_of_others_count_where_they_are_named(logs: Path, own_folder: Path) -> None:
    needs_root("give a folder to somebody else")
    theirs = sorted(logs.iterdir())[0]
    os.chown(theirs, 12345, 12345)
    with pytest.warns(Notice, match="1 run of user 12345: left out"):
        [made] = calibrate(logs)
    assert theirs.name not in made.calibration.runs
    assert theirs.name in {one.run for one in compared(sorted(logs.iterdir()))}
