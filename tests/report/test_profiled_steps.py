"""Profiles of runs in the report: a bar that is the whole step, and tables of kernels and waits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.profiles import KINDS, read_profile

SHARES = {"compute": 0.5, "optimizer": 0.1, "communication": 0.2, "copies": 0.05, "idle": 0.15}
RECORD: dict[str, Any] = {
    "schema": 1, "step_time_s": 0.02, "measured_step_time_s": 0.016, "steps": 3, "shares": SHARES,
    "kernels": [{"name": f"kernel_{n}<b>|{n}", "kind": "compute", "time_s": 0.001 * (20 - n), "calls": 2.0, "share": 0.05} for n in range(20)],
    "waits": [{"what": "next batch", "inside": None, "time_s": 0.002, "calls": 1.0, "share": 0.1}],
}  # fmt: skip


def make_run(logs: Path, name: str, profile: object) -> RunPaths:
    run = RunPaths(logs / name)
    run.root.mkdir(parents=True)
    plan = {"task": "pretrain", "cluster": "here", "method": name, "model": "tiny", "steps": 9, "world_size": 1, "sequence_length": 64,
            "micro_batch_size": 1, "gradient_accumulation_steps": 1}  # fmt: skip
    for path, record in (
        (run.experiment, {"schema": 1, "run_id": name, "plan": plan}),
        (
            run.result,
            {"schema": 1, "outcome": "COMPLETED", "tokens_per_second_per_gpu": 5.0, "step_time_s_mean": 0.016},
        ),
        (run.exit, {"schema": 1, "exit_code": 0, "stage": "done"}),
    ):
        path.write_text(json.dumps(record))
    run.profile.write_text(profile if isinstance(profile, str) else json.dumps(profile))
    return run


def test_a_profile_is_a_plot_and_tables_of_the_report(tmp_path: Path) -> None:
    for name in ("ddp", "z3"):
        make_run(tmp_path / "logs", name, RECORD)
    made = hpc_llm.report(tmp_path / "logs", output=tmp_path / "out")
    assert {"profile-all-models.png", "profile-all-models.svg"} <= {path.name for path in made.files}
    drawn = (tmp_path / "out" / "profile-all-models.svg").read_text()
    assert all(kind in drawn for kind in KINDS) and "Share of the step (%)" in drawn
    markdown = (tmp_path / "out" / "results.md").read_text()
    assert markdown.count("## Kernels by time: ") == 2 and markdown.count("## What the host waits for: ") == 2
    assert (
        "20.000" in markdown
        and "kernel_9" in markdown.replace("\\", "")
        and "kernel_10" not in markdown.replace("\\", "")
    )
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<td>kernel_0&lt;b&gt;|0</td>" in page and "<td>next batch</td>" in page and "kernel_0<b>" not in page
    row = "<td>50.0</td><td>10.0</td><td>20.0</td><td>5.0</td><td>15.0</td>"
    assert f"<td>16</td><td>20</td>{row}" in "".join(page.split("\n"))


@pytest.mark.parametrize(
    "damaged",
    [
        "{", "[]", {**RECORD, "schema": 2}, {**RECORD, "shares": None}, {**RECORD, "shares": {**SHARES, "idle": 0.5}},
        {**RECORD, "shares": {**SHARES, "idle": None}}, {**RECORD, "shares": {"compute": 1.0}}, {**RECORD, "step_time_s": 0},
        {**RECORD, "step_time_s": "1"}, {**RECORD, "shares": {**SHARES, "compute": -0.5, "idle": 1.15}},
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_is_none(tmp_path: Path, damaged: object) -> None:
    assert read_profile(make_run(tmp_path, "ddp", damaged)) is None


def test_rows_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    rows = [*RECORD["kernels"][:1], None, {"name": "x"}, {**RECORD["kernels"][1], "time_s": -1}]
    found = read_profile(make_run(tmp_path, "ddp", {**RECORD, "kernels": rows, "waits": "none"}))
    assert found is not None and len(found.kernels) == 1 and found.waits == []
    shutil.rmtree(tmp_path / "ddp")
    assert read_profile(RunPaths(tmp_path / "ddp")) is None
