"""What is predicted at submission: kept with the run, set beside what it measured, and told where the time limit is too short."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import planned

from hpc_llm.api import parse, prepare
from hpc_llm.api.predicting import predictions, tell_times, too_short
from hpc_llm.errors import Notice
from hpc_llm.records.files import write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting import collect, make_report, write_report
from hpc_llm.site.cluster import parse_cluster
from hpc_llm.site.profiles import bundled

GIB = 2**30


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def told(**options: Any) -> list[str]:
    """What is told of the times of what is asked for on Taiwania 2."""
    made = prepare(cluster="taiwania2", account="MST1", method="z3", model="llama2-7b", **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tell_times(made)
    return [str(one.message) for one in found if issubclass(one.category, Notice)]


def test_a_limit_that_is_too_short_is_told_and_the_advice_helps() -> None:
    [sentence] = told(steps=20000)
    assert "its time limit is 00:30:00: --time " in sentence
    advised = sentence.rpartition("--time ")[2].split()[0]
    assert told(steps=20000, time=advised) == []


def test_a_limit_that_is_long_enough_is_not_worth_a_word() -> None:
    assert told(steps=200) == []
    assert told(steps=20000, time="20:00:00") == []


def test_where_the_site_allows_no_more_the_way_out_is_another() -> None:
    [sentence] = told(steps=20000, partition="gtest")
    assert "--time" not in sentence and "--save-every N" in sentence and "longest" in sentence
    [sentence] = told(steps=20000, partition="gtest", save_every=100)
    assert "--save-every" not in sentence


def test_the_longest_limit_is_not_said_to_leave_room_for_what_is_longer() -> None:
    [sentence] = told(steps=1_000_000, time="00:30:00")
    assert "leaves room" not in sentence and "may need more" in sentence and "--save-every N" in sentence
    advised = sentence.partition("--time ")[2].split()[0]
    [again] = told(steps=1_000_000, time=advised)
    assert "the longest that is allowed there" in again
    [kept] = told(steps=1_000_000, time="00:30:00", save_every=100)
    assert "may need more" in kept and "--save-every" not in kept


def test_a_qos_that_allows_more_is_named_beside_the_longest_limit() -> None:
    qos = [
        {"name": "usual", "max_time": "20:00:00", "default": True},
        {"name": "long", "max_time": "2-00:00:00", "max_gpus_per_job": 4, "lifts": ["time"]},
        {"name": "short", "max_time": "02:00:00"},
    ]
    site = parse_cluster({**yaml.safe_load((bundled("clusters") / "delta.yaml").read_text()), "qos": qos}, "delta.yaml")

    def said(gpus: int, **options: Any) -> str | None:
        return too_short(
            planned(site, "z3+r", model="llama2-7b", steps=10**7, time="20:00:00", nodes=gpus // 4, **options).plan,
            site,
            None,
        )

    assert "the longest that is allowed there: --sbatch qos=long allows more; --save-every" in str(said(4))
    assert "allowed there: --save-every" in str(said(8))
    planned(site, "z3+r", time="1-00:00:00", sbatch=("qos=long",))


def test_runs_of_one_kind_are_told_once() -> None:
    assert len(told(steps=20000, seed=1)) == 1
    made = prepare({"matrix": {"seed": [1, 2, 3]}}, cluster="taiwania2", account="MST1", method="z3", steps=20000)
    with pytest.warns(Notice) as found:
        tell_times(made)
    assert len(found) == 1


def test_submission_tells_it() -> None:
    words = "submit --dry-run --cluster taiwania2 --account MST1 --method z3 --steps 20000".split()
    done = subprocess.run([sys.executable, "-m", "hpc_llm", *words], capture_output=True, text=True, check=True)
    assert "is expected to take" in done.stderr and "--time " in done.stderr


def test_what_is_predicted_is_small_and_plain() -> None:
    [batch] = prepare(cluster="taiwania2", account="MST1", method="z3", model="llama2-7b")
    [said] = predictions(batch)
    assert said is not None and set(said) == {
        "step_time_s", "step_time_interval_s", "run_time_s", "run_time_interval_s", "peak_allocated_bytes",
    }  # fmt: skip
    assert json.loads(json.dumps(said)) == said
    low, high = said["step_time_interval_s"]
    assert low < said["step_time_s"] < high
    assert 10 * GIB < said["peak_allocated_bytes"] < 30 * GIB


def test_of_a_run_on_the_cpu_nothing_is_predicted() -> None:
    [batch] = prepare(cluster="local", method="ddp", model="tiny")
    assert predictions(batch) == [None]


def finished(folder: Path, prediction: Any) -> None:
    """A run as it lies there after its end."""
    run = RunPaths(folder)
    [batch] = prepare(cluster="taiwania2", account="MST1", method="z3", model="llama2-7b")
    plan = batch.planned[0].plan.to_dict()
    write_json(run.experiment, {"schema": 1, "run_id": folder.name, "plan": plan, "prediction": prediction})
    result = {
        "schema": 1,
        "outcome": "COMPLETED",
        "gpu": "Tesla V100-SXM2-32GB",
        "step_time_s_p50": 1.5,
        "world_size": 8,
    }
    write_json(run.result, {**result, "peak_allocated_bytes": 20 * GIB, "tokens_per_second": 1866.7})
    write_json(run.root / "exit.json", {"schema": 1, "exit_code": 0, "stage": "done"})


def test_the_report_sets_prediction_beside_measurement(tmp_path: Path) -> None:
    finished(tmp_path / "logs" / "run", {"step_time_s": 1.25, "peak_allocated_bytes": 18 * GIB})
    [row] = parse(tmp_path / "logs")
    assert (row.step_time_s_p50, row.predicted_step_time_s) == (1.5, 1.25)
    assert (row.peak_allocated_bytes, row.predicted_peak_allocated_bytes) == (20 * GIB, 18 * GIB)
    write_report(make_report(collect([tmp_path / "logs"])), tmp_path / "report")
    shown = (tmp_path / "report" / "results.md").read_text(encoding="utf-8")
    header = next(line for line in shown.splitlines() if "Step predicted (s)" in line)
    assert "Peak predicted (GiB)" in header and "1.250" in shown and "18.00" in shown


@pytest.mark.parametrize(
    "prediction", [None, [], "soon", {"step_time_s": -1}, {"step_time_s": "x", "peak_allocated_bytes": 1e99}]
)
def test_a_prediction_that_cannot_be_is_none(tmp_path: Path, prediction: Any) -> None:
    finished(tmp_path / "logs" / "run", prediction)
    [row] = parse(tmp_path / "logs")
    assert row.predicted_step_time_s is None and row.predicted_peak_allocated_bytes is None
