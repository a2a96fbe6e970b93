"""Folders as version 0.1 wrote them, one of each outcome: every command reads them still."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_folders import Slurm
from test_one_judge import reported

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.cli import run as command
from hpc_llm.records.run import Outcome

WRITTEN = Path(__file__).parent / "version_0_1"
CAUSES = {
    "COMPLETED": "none", "FAILED": "python_exception", "OOM_DEVICE": "device_oom", "OOM_HOST": "host_oom", "TIMEOUT": "walltime",
    "CANCELLED": "cancelled", "PREEMPTED": "preempted", "NODE_FAIL": "node_fail", "INVALID": "config_error", "UNKNOWN": "unknown",
}  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path, slurm: Slurm) -> Path:
    """The folders; Slurm has long forgotten the jobs."""
    slurm.says(None)
    copied = tmp_path / "logs"
    for folder in WRITTEN.iterdir():
        shutil.copytree(folder, copied / json.loads((folder / "experiment.json").read_text())["run_id"])
    return copied


def test_there_is_one_of_each_outcome() -> None:
    assert {folder.name.upper() for folder in WRITTEN.iterdir()} == set(Outcome.__members__) == set(CAUSES)


def test_every_command_knows_how_they_ended(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert command(["status", "--json", "--logs", str(logs)]) == 0
        told = {run["run_id"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
        assert {name: run["outcome"] for name, run in told.items()} == {name: _expected(name) for name in told}
        assert {run["state"] for run in told.values()} >= {"PREEMPTED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"}
        assert command(["parse", "--format=json", str(logs)]) == 0
        for row in json.loads(capsys.readouterr().out):
            expected = _expected(row["run_id"])
            assert (row["outcome"], row["cause"], row["job_id"]) == (expected, CAUSES[expected], "4711"), row
        assert command(["diagnose", "--json", str(logs)]) == 0
        for found in json.loads(capsys.readouterr().out):
            assert found["cause"] == CAUSES[_expected(found["source"])], found
    assert command(["report", str(logs), "-o", str(tmp_path / "out")]) == 0
    for name, (outcome, title) in reported(tmp_path / "out" / "index.html").items():
        cause = CAUSES[_expected(name)]
        assert outcome == _expected(name)
        assert title == {"none": None, "unknown": "not recognised"}.get(cause, BY_ID[cause].title)


def _expected(run_id: str) -> str:
    return run_id.rpartition("-")[2].upper()
