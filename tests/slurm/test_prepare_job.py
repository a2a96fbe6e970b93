"""Task prepare as a job of a real Slurm, whose Python holds nothing of ours; then a training of what it has made is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from login_node import LoginNode, printed
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

pytestmark = pytest.mark.slurm

ON_DELTA = (
    "--cluster=delta",
    "--partition=gpuA100x4",
    "--account=bbka-delta-gpu",
    "--sbatch=mem=8G",
    "--time=00:10:00",
)


@pytest.fixture(scope="module")
def node(slurm: ScratchSlurm, site: ScratchSite, tmp_path_factory: pytest.TempPathFactory) -> LoginNode:
    login = LoginNode(tmp_path_factory.mktemp("prepare"), slurm)
    site.write_profiles(login.folder)
    return login


def test_a_job_prepares_what_a_training_then_finds(node: LoginNode) -> None:
    data = node.folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n} = ", "completion": str(n)}) + "\n" for n in range(50)))
    asked = (*ON_DELTA, "--model=tiny", f"--data={data}", "--set=validation_fraction=0.2")
    refused = node.ask("submit", "--method=z3", "--gpus-per-node=0", *asked)
    assert refused.returncode == 2 and "--task prepare --cluster delta" in refused.stderr
    [run] = node.submit("--task=prepare", *asked)
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", printed(run)
    result = json.loads(run.result.read_text())
    assert {split: one["samples"] for split, one in result["splits"].items()} == {"train": 40, "validation": 10}
    assert Path(result["corpus"]).parent == node.folder / "caches"
    shown = json.loads(
        node.do("render", "--method=z3", "--gpus-per-node=0", *asked, "--epochs=4", "--sequence-length=32", "--json")
    )
    assert shown["plan"]["workload"]["steps"] == 160 and shown["plan"]["workload"]["corpus"] == result["corpus"]
