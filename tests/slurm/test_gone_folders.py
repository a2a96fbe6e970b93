"""`cancel NAME` of a run whose folder is gone: what its job proves is ended, of the rest is said what is known and what to do by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from login_node import job_id
from made_runs import send_job
from scratch_slurm import ScratchSlurm

from hpc_llm.api import cancel
from hpc_llm.errors import RequestError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.slurm

HELD = "#!/bin/bash\n#SBATCH --partition=gtest\n#SBATCH --hold\n#SBATCH --output={}\nsleep 600\n"


@pytest.fixture
def gone(on_cluster: ScratchSlurm, tmp_path: Path) -> tuple[RunPaths, str, str]:
    """A run whose job waits and whose folder is gone, its job id and the UUID of its submission."""
    logs = tmp_path / "logs"
    run = send_job(logs, "gone", {"plan": {}}, HELD.format(logs / "gone" / "log.out"))
    job, uuid = job_id(run), (read_json(run.job) or {})["uuid"]
    shutil.rmtree(run.root)
    return run, job, uuid


def test_a_job_that_proves_itself_is_ended_by_the_name_of_its_run(
    gone: tuple[RunPaths, str, str], slurm: ScratchSlurm
) -> None:
    run, job, _ = gone
    [done] = cancel("gone", logs=run.root.parent)
    assert done.problem is None and done.job_id == job and slurm.job_state(job) == "CANCELLED"


def test_a_job_that_proves_nothing_is_left_and_told_how_it_is_found(
    gone: tuple[RunPaths, str, str], slurm: ScratchSlurm
) -> None:
    run, job, uuid = gone
    slurm.run("scontrol", "update", f"jobid={job}", "comment=of the site")
    with pytest.raises(RequestError) as told:
        cancel("gone", logs=run.root.parent)
    assert str(told.value) == (
        f"the folder of run gone is gone from {run.root.parent}, and Slurm lists no job that is proven to be its own: nothing was done. "
        f"A job whose name ends in -{uuid[:8]} is this run's: `scancel JOB` ends it."
    )
    assert slurm.job_state(job) == "PENDING"
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%j").strip().endswith(f"-{uuid[:8]}")
    slurm.run("scancel", job)


def test_where_slurm_does_not_answer_that_is_said(
    gone: tuple[RunPaths, str, str], without_answers: ScratchSlurm, slurm: ScratchSlurm
) -> None:
    run, job, uuid = gone
    with pytest.raises(
        RequestError, match=rf"Slurm does not say what goes on \(.*\): nothing was done.*-{uuid[:8]} is this run's"
    ):
        cancel("gone", logs=run.root.parent)
    slurm.run("scancel", job)


def test_a_name_that_no_run_had_is_told_as_before(on_cluster: ScratchSlurm, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no run 'never'"):
        cancel("never", logs=tmp_path)
