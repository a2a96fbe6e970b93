"""Two ranks started for real by each launcher that one machine has, through the command line and the job script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OPEN_MPI_FOR_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_two_ranks_train_under(launcher: str, tmp_path: Path) -> None:
    if shutil.which(launcher) is None and launcher == "mpirun":
        pytest.fail("mpirun is not here: apt-get install openmpi-bin")
    command = [sys.executable, "-c", "from hpc_llm.cli import main; main()", "submit", "--cluster", "local"]
    command += ["--method", "z3", "--model", "tiny", "--gpus-per-node", "0", "--sequence-length", "32", "--steps", "6"]
    command += ["--set", "tasks_per_node=2", "--set", f"launcher={launcher}"]
    command += ["--logs", str(tmp_path), "--wait", "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, **OPEN_MPI_FOR_ROOT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["runs"][0]["result"]
    assert result["outcome"] == "COMPLETED"
    assert result["world_size"] == 2
    assert result["loss_last"] < result["loss_first"] + 0.5
