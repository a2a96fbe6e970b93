"""The scratch cluster itself: true to the three sites, beside another one, and gone without a trace."""

from __future__ import annotations

import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from scratch_slurm import NODES, PortBlock, ScratchSlurm, missing_tools


@pytest.mark.slurm
def test_it_has_the_partitions_and_gpus_of_the_three_sites(slurm: ScratchSlurm) -> None:
    lines = set(slurm.run("sinfo", "-h", "-o", "%R %l %G %D").splitlines())
    assert {
        "gtest 30:00 gpu:v100:8 2",
        "gp2d 2-00:00:00 gpu:v100:8 2",
        "sky 1-00:00:00 gpu:mi210:2 1",
        "gpuA100x4 2-00:00:00 gpu:a100:4 2",
        "gpuA100x4-preempt 2-00:00:00 gpu:a100:4 2",
        "gpuA100x8 2-00:00:00 gpu:a100:8 1",
    } <= lines


@pytest.mark.slurm
def test_another_one_may_run_beside_it_and_leaves_nothing(slurm: ScratchSlurm) -> None:
    # A short path: that of a test leaves no room for the name of a step's socket, which takes 108 bytes.
    with TemporaryDirectory(prefix="second-") as short, ScratchSlurm(Path(short) / "second") as second:
        assert second.node_states() == dict.fromkeys(NODES, "idle")
        job = second.folder / "job.sh"
        job.write_text("#!/bin/bash\n#SBATCH -o /dev/null\nsetsid sleep 300 &\nsrun sleep 300 || sleep 300\n")
        number = second.run("sbatch", str(job)).split()[-1]
        second.wait_until("the job runs", lambda: second.job_state(number) == "RUNNING")
        assert slurm.run("squeue", "-h", "-n", "job.sh") == ""
    assert not second.is_listening()  # a client would wait a minute, for munge as well
    mark = f"SLURM_CONF={second.conf}".encode()
    assert not [each for each in Path("/proc").glob("[0-9]*/environ") if mark in _read(each)]


@pytest.mark.slurm
def test_wiped_it_knows_no_job_and_gives_the_same_ids_again(tmp_path: Path) -> None:
    with ScratchSlurm(tmp_path / "wiped", name="wiped", accounting=False) as cluster:
        first = cluster.run("sbatch", "-H", "-o", "/dev/null", "--wrap=true").split()[-1]
        cluster.wipe(int(first))
        assert cluster.run("squeue", "-hat", "all") == ""
        assert cluster.run("sbatch", "-H", "-o", "/dev/null", "--wrap=true").split()[-1] == first
        assert not cluster.ok("sacct")


@pytest.mark.slurm
def test_a_controller_that_hung_has_taken_the_job_that_sbatch_gave_up(tmp_path: Path) -> None:
    with ScratchSlurm(tmp_path / "hung", accounting=False, message_timeout_s=1) as cluster:
        cluster.freeze("slurmctld")
        with pytest.raises(RuntimeError, match="Socket timed out"):
            cluster.run("sbatch", "-H", "-o", "/dev/null", "--wrap=true")
        cluster.thaw("slurmctld")
        cluster.wait_until("the job is there", lambda: cluster.run("squeue", "-ht", "all").strip() != "")


@pytest.mark.slurm
def test_jobs_survive_the_restart_of_the_controller(tmp_path: Path) -> None:
    with ScratchSlurm(tmp_path / "restarted", accounting=False, message_timeout_s=1) as cluster:
        job = cluster.run("sbatch", "-H", "-o", "/dev/null", "--wrap=true").split()[-1]
        cluster.end("slurmctld", signal.SIGTERM)
        assert not cluster.ok("squeue")
        cluster.start_controller()
        assert cluster.job_state(job) == "PENDING"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_no_two_clusters_get_the_same_ports() -> None:
    blocks = [PortBlock() for _ in range(3)]
    assert len({block.base for block in blocks}) == 3
    for block in blocks:
        block.release()


def test_missing_tools_come_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scratch_slurm.shutil.which", lambda tool, path: None if tool.startswith("m") else tool)
    sentence = missing_tools()
    assert "mariadbd" in sentence and "sbatch" not in sentence
    assert sentence.endswith("apt-get install -y --no-install-recommends environment-modules mariadb-server munge")
