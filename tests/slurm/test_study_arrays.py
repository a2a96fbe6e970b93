"""Studies on a real Slurm: runs with equal scripts are one array, others go beside it, and arrays hold their tasks back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from failing_runs import HUNGRY, WAITS, package
from login_node import LoginNode, job_id, printed, until
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.slurm

STUDY: dict[str, Any] = {
    "cluster": "no-module", "account": "ACD110018", "partition": "gtest", "method": "z3", "model": "tiny", "steps": 4,
    "warmup-steps": 1, "gpus-per-node": 0, "sequence-length": 32, "set": {"precision": "fp32"},
    "matrix": {"time": ["00:10:00", "00:20:00"], "seed": [1, 2, 3]},
    "runs": [{"name": "alone", "time": "00:15:00"}],
    "expect": "FAILED",
}  # fmt: skip
"""Each of its jobs ends at once, for a module is missing."""


@pytest.fixture
def node(slurm: ScratchSlurm, site: ScratchSite, tmp_path: Path) -> LoginNode:
    login = LoginNode(tmp_path / "user", slurm)
    profile = site.profile("taiwania2")
    login.add_cluster("no-module", **{**profile, "prelude": {**profile["prelude"], "load": ["no-such-module/1.0"]}})
    return login


def write(node: LoginNode, **more: Any) -> str:
    (node.folder / "study.yaml").write_text(
        yaml.safe_dump({key: value for key, value in {**STUDY, **more}.items() if value is not None})
    )
    return "study.yaml"


def place(run: RunPaths) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.experiment.read_text())["study"]
    return found


def by_job(runs: Sequence[RunPaths]) -> dict[str, list[RunPaths]]:
    found: dict[str, list[RunPaths]] = {}
    for run in runs:
        found.setdefault(job_id(run).partition("_")[0], []).append(run)
    return found


def overlap(runs: Sequence[RunPaths]) -> bool:
    """Whether two of them ran at the same time, by the clock of their scripts in whole seconds."""
    ends = sorted((e["started_at"], e["ended_at"]) for e in (json.loads(run.exit.read_text()) for run in runs))
    return any(later < end for (_, end), (later, _) in pairwise(ends))


def test_arrays_hold_back_and_expected_failures_are_a_success(node: LoginNode) -> None:
    done = node.ask("submit", write(node), "--max-parallel=1", "--wait", "--json", "--force")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["runs"]
    assert {one["outcome"] for one in told} == {one["expect"] for one in told} == {"FAILED"}
    jobs = by_job([RunPaths(Path(one["run_dir"])) for one in told])
    assert sorted(len(runs) for runs in jobs.values()) == [1, 3, 3]
    for runs in jobs.values():
        assert len({run.script.read_text() for run in runs}) == 1 and not overlap(runs)
        assert ("--array=0-2%1" in runs[0].script.read_text()) is (len(runs) == 3)
        assert len({place(run)["differs"].get("time") for run in runs}) == 1
    assert node.ask("submit", write(node, expect="TIMEOUT"), "--wait", "--force", "--run-id=again").returncode == 3


def test_slurm_itself_knows_the_limit(node: LoginNode) -> None:
    runs = node.submit(write(node), "--max-parallel=2", "--force", "--sbatch=hold")
    try:
        arrays = [job for job, members in by_job(runs).items() if len(members) > 1]
        assert len(arrays) == 2
        for job in arrays:
            assert "ArrayTaskThrottle=2" in node.slurm.run("scontrol", "show", "job", job)
    finally:
        node.do("cancel", *(run.run_id for run in runs))


def test_one_bad_run_stops_all(node: LoginNode) -> None:
    bad = write(node, runs=[{"name": "alone", "time": "9-00:00:00"}])
    refused = node.ask("submit", bad, "--force")
    assert refused.returncode == 2 and "run alone on cluster no-module: time 9-00:00:00" in refused.stderr
    assert not node.logs.exists()


def test_a_time_limit_and_a_full_memory_are_a_success_where_they_are_expected(
    slurm: ScratchSlurm, site: ScratchSite, tmp_path: Path
) -> None:
    """Of ranks that only wait, or take memory, in the place of torch."""
    node = LoginNode(tmp_path / "user", slurm)
    site.write_profiles(node.folder)
    torch = f'import os\nif os.environ["SLURM_MEM_PER_NODE"] == "100": {HUNGRY}\n{WAITS}\n'
    ours = f"--set=env.PYTHONPATH={package(tmp_path / 'ours', 'torch', torch)}"
    endless = {"name": "endless", "sbatch": {"mem": "200M"}, "expect": "TIMEOUT"}
    hungry = {"name": "hungry", "sbatch": {"mem": "100M"}, "expect": "OOM_HOST"}
    base = {"cluster": "taiwania2", "time": "00:10:00", "set": {"precision": "fp32", "launcher": "srun"}}
    file = write(node, **base, matrix=None, expect=None, runs=[endless, hungry])
    waiting = node.start("submit", file, ours, "--force", "--wait", "--json")
    until("both are submitted", lambda: len([*node.logs.glob("2*/job.json")]) == 2 or waiting.poll() is not None)
    assert waiting.poll() is None, waiting.communicate()
    runs = {place(run)["name"]: run for run in map(RunPaths, node.logs.glob("2*"))}
    until("it has begun", lambda: "waits\n" in printed(runs["endless"]))
    slurm.expire(job_id(runs["endless"]))
    out, err = waiting.communicate(timeout=150)
    assert waiting.returncode == 0, err
    told = {one["study_run"]: (one["expect"], one["outcome"]) for one in json.loads(out)["runs"]}
    assert told == {"endless": ("TIMEOUT", "TIMEOUT"), "hungry": ("OOM_HOST", "OOM_HOST")}
