"""Each launcher starts ranks on two nodes of the scratch Slurm: Open MPI's own mpirun, and one from outside the package.

srun and torchrun do so in test_slurm_jobs.py. The ranks are copies: test_launchers.py has an mpirun that starts them itself. A fine-tuning over two nodes trains, evaluates and keeps what one over one does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from login_node import LoginNode, printed
from outside_launcher import install
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

from hpc_llm.records.checkpoints import kept_in
from hpc_llm.records.files import read_json_lines

pytestmark = pytest.mark.slurm

WORDS = (
    "--partition=gtest", "--account=ACD110018", "--method=z3", "--model=tiny", "--gpus-per-node=0", "--steps=4",
    "--warmup-steps=1", "--sequence-length=32", "--set=precision=fp32", "--time=00:10:00", "--nodes=2",
)  # fmt: skip
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def profile(site: ScratchSite, launcher: str) -> dict[str, Any]:
    """The first site's, with this launcher alone, and with the mpirun that is installed here."""
    found = site.profile("taiwania2")
    prelude = {**found["prelude"], "load": ["miniconda3/conda24.5.0_py3.9"]}
    launch = {
        "single_node": launcher,
        "multi_node": launcher,
        "allowed": [launcher],
        "mpirun_args": ["--oversubscribe"],
    }
    return {**found, "prelude": prelude, "env": {**found["env"], "common": AS_ROOT}, "launch": launch}


def test_two_nodes_are_one_training(slurm: ScratchSlurm, quick_site: ScratchSite, tmp_path: Path, tool: Any) -> None:
    tool("mpirun", "openmpi-bin")
    node = LoginNode(tmp_path / "user", slurm)
    path = {"PYTHONPATH": str(install(tmp_path / "theirs"))}
    for launcher in ("mpirun", "theirs"):
        node.add_cluster(launcher, **profile(quick_site, launcher))
    refused = node.ask("render", "--cluster=theirs", *WORDS)
    assert refused.returncode == 2 and "there is no launcher 'theirs'" in refused.stderr
    runs = [
        run for launcher in ("mpirun", "theirs") for run in node.submit(f"--cluster={launcher}", *WORDS, environ=path)
    ]
    for run, launcher in zip(runs, ("mpirun", "theirs"), strict=True):
        [status] = node.wait([run])
        assert status["outcome"] == "COMPLETED", printed(run)
        assert json.loads(run.result.read_text())["world_size"] == 2
        assert json.loads(run.experiment.read_text())["plan"]["job"]["launcher"] == launcher


def test_a_fine_tuning_over_two_nodes_evaluates_and_keeps_its_adapter(node: LoginNode) -> None:
    """Each node holds half of every layer, of which the first one writes the adapter whole."""
    from safetensors import safe_open

    tune = ("--cluster=taiwania2", "--task=finetune", "--set=tasks_per_node=1", "--set=launcher=srun")
    changes = ("--method=z3+lora", "--save-every=2", "--set=eval_every=2")
    [run] = node.submit(*WORDS, *tune, *changes)
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", printed(run)
    result = json.loads(run.result.read_text())
    assert (result["world_size"], result["eval_tokens"]) == (2, 64 * 31)
    assert [row["step"] for row in read_json_lines(run.evaluations)] == [2, 4] and result["perplexity"] > 1
    assert [one.step for one in kept_in(run.root)] == [2, 4]
    with safe_open(run.model / "adapter_model.safetensors", "pt") as kept:
        numbers = [kept.get_tensor(name).abs().sum().item() for name in kept.keys()]  # noqa: SIM118  it is no mapping
    assert len(numbers) == 28 and all(numbers)
