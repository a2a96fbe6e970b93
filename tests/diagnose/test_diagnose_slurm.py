"""Jobs that a real Slurm ends: slurmstepd and srun write the evidence, all of them at once."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from scratch_slurm import ScratchSlurm

from hpc_llm.diagnose import Diagnosis, diagnose_files

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

MODULES = "/usr/share/modules/init/bash"
EATS_MEMORY = "x = bytearray(400 << 20)\nfor k in range(0, len(x), 4096): x[k] = 1\nimport time\ntime.sleep(60)"
JOBS = {
    "walltime": "srun sleep 300",
    "cancelled": "srun sleep 300",
    "host_oom": f"srun {sys.executable} -c '{EATS_MEMORY}'",
    "module_missing": f". {MODULES}\nset -e\nmodule load no-such-module/1.0",
    "package_missing": f"srun {sys.executable} -m a_package_that_nobody_has",
    "unknown": "srun bash -c 'exit 3'",
    "segfault": f"srun {sys.executable} -c 'import ctypes; ctypes.string_at(0)'",
}


@dataclass
class Ended:
    """Jobs that are over, by what they were to die of."""

    logs: dict[str, Path]

    def diagnosis(self, cause: str) -> Diagnosis:
        return diagnose_files([self.logs[cause]])


@pytest.fixture(scope="module")
def ended(slurm: ScratchSlurm, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("jobs")
    jobs: dict[str, str] = {}
    for cause, body in JOBS.items():
        script = folder / f"{cause}.sh"
        script.write_text(f"#!/bin/bash\n{body}\n")
        asked = ["--mem=100M", "--partition=gtest", "--time=00:05:00", f"--output={folder / cause}.out"]
        jobs[cause] = slurm.run("sbatch", "--parsable", "--account=ACD110018", *asked, str(script)).strip()
    _until(lambda: _state(slurm, jobs["walltime"]) == "RUNNING" and _state(slurm, jobs["cancelled"]) == "RUNNING")
    time.sleep(1)  # srun is to have started its step
    slurm.run("scontrol", "update", f"jobid={jobs['walltime']}", "EndTime=now+1")
    slurm.run("scancel", jobs["cancelled"])
    _until(lambda: not slurm.run("squeue", "--noheader", "--format=%i").split(), seconds=90)
    return Ended({cause: folder / f"{cause}.out" for cause in jobs})


def _state(slurm: ScratchSlurm, job: str) -> str:
    return slurm.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def _until(condition, seconds: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


@pytest.mark.parametrize("cause", JOBS)
def test_what_slurm_writes_is_understood(ended: Ended, cause: str) -> None:
    found = ended.diagnosis(cause)
    assert found.cause.id == cause, (found, ended.logs[cause].read_text())
    assert cause == "unknown" or found.confidence >= 0.85


def test_over_memory_says_how_much(ended: Ended) -> None:
    assert "were allowed" in ended.diagnosis("host_oom").summary


def test_the_module_is_named(ended: Ended) -> None:
    assert ended.diagnosis("module_missing").details["module"] == "no-such-module/1.0"
