"""What is printed in the name of Slurm's commands and is no answer of theirs: nothing is done on it, and nothing of it stays."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from made_runs import send_job, send_runs
from scratch_slurm import ScratchSlurm

from hpc_llm.errors import RequestError
from hpc_llm.records.run import RunPaths
from hpc_llm.runs import Deed, cancel, make_way, reconcile, status
from hpc_llm.schedulers.runs import answer_file, read_identity, submitit_folder

pytestmark = pytest.mark.slurm

WAITS = "#!/bin/bash\n#SBATCH --begin=now+1hour --output=/dev/null --time=00:05:00 --mem=10M --partition=gtest\ntrue\n"
NO_ANSWERS = {
    "nothing": "",
    "bytes": "head -c 300000 /dev/urandom",
    "a notice": "echo 'the queue is being moved, ask again tomorrow'",
    "cut off in its header": '/usr/bin/$me "$@" | head -c 60',
    "cut off in its lines": r'/usr/bin/$me "$@" | sed -E "2,\$ s/^(.{20}).*/\1/"',
    "lies": '/usr/bin/$me "$@" | sed s/PENDING/COMPLETED/',
    "an odd id": r'/usr/bin/$me "$@" | sed -E "s/^([0-9]+)/\1²/"',
}
"""What a command prints instead, with exit code 0."""


@pytest.fixture
def logs(on_cluster: ScratchSlurm, tmp_path: Path) -> Path:
    return tmp_path / "logs"


def waiting(logs: Path, name: str = "r") -> RunPaths:
    return send_job(logs, name, {"run_id": name, "plan": {}}, WAITS)


def job_of(run: RunPaths) -> str:
    identity = read_identity(run)
    assert identity is not None and identity.job_id is not None
    return identity.job_id


def wrapped(folder: Path, patch: pytest.MonkeyPatch, body: str, *commands: str) -> None:
    """Put such commands first on PATH; `$me` is the name of Slurm's own."""
    (folder / "wrapped").mkdir(exist_ok=True)
    for command in commands:
        path = folder / "wrapped" / command
        path.write_text(f"#!/bin/bash\nme={command}\n{body}\nexit 0\n")
        path.chmod(0o755)
    patch.setenv("PATH", str(folder / "wrapped"), prepend=os.pathsep)


@pytest.mark.parametrize("commands", [("squeue", "sacct"), ("squeue",)], ids=["both", "the queue"])
def test_on_no_answer_nothing_is_done_and_nothing_of_it_stays(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: tuple[str, ...]
) -> None:
    run = waiting(logs)
    before = run.job.read_text()
    for what, body in NO_ANSWERS.items():
        with monkeypatch.context() as patch:
            wrapped(tmp_path, patch, body, *commands)
            assert status([run])[0].outcome is None, what
            with pytest.raises(RequestError):
                make_way(logs, ["r"], schedulers=["slurm"])
            assert cancel([run])[0].problem, what
            assert reconcile([run]) == [], what
        assert run.job.read_text() == before and not run.cancelled.exists(), what
        assert slurm.job_state(job_of(run)) == "PENDING" == status([run])[0].state, what
    assert cancel([run])[0].problem is None and slurm.job_state(job_of(run)) == "CANCELLED"


def test_on_no_answer_a_run_whose_job_nobody_wrote_down_stays(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(logs)
    answer_file(submitit_folder(run, None)).unlink()
    run.job.write_text(json.dumps({**json.loads(run.job.read_text()), "job_id": None}))
    for what, body in NO_ANSWERS.items():
        with monkeypatch.context() as patch:
            wrapped(tmp_path, patch, body, "squeue", "sacct")
            assert {one.deed for one in reconcile([run])} <= {Deed.LEFT}, what
        assert run.root.is_dir(), what
    assert [one.deed for one in reconcile([run])] == [Deed.ADOPTED]
    cancel([run])


def test_a_line_that_is_none_of_slurm_s_hinders_no_other(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(logs)
    lines = "".join(f"{job:<40}PENDING\\n" for job in ("99_[²]", "99_[0-99999999999]", "²"))
    for order in (f'printf "{lines}"; /usr/bin/$me "$@"', f'/usr/bin/$me "$@"; printf "{lines}"'):
        with monkeypatch.context() as patch:
            wrapped(tmp_path, patch, order, "squeue")
            assert status([run])[0].state == "PENDING"
    with monkeypatch.context() as patch:
        wrapped(tmp_path, patch, order, "squeue")
        assert cancel([run])[0].problem is None


def test_one_question_of_each_command_is_enough_for_all_runs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [waiting(logs, f"r{number}") for number in range(3)]
    asked = tmp_path / "asked"
    with monkeypatch.context() as patch:
        wrapped(tmp_path, patch, f'echo $me >> {asked}; /usr/bin/$me "$@"', "squeue", "sacct")
        assert [one.state for one in status(runs)] == ["PENDING"] * 3
    assert sorted(asked.read_text().split()) == ["sacct", "squeue"]
    cancel(runs)


@pytest.mark.parametrize("array", [None, "a"])
def test_the_copy_of_a_folder_of_runs_does_not_act_on_the_jobs_of_the_original(
    logs: Path, slurm: ScratchSlurm, tmp_path: Path, array: str | None
) -> None:
    script = WAITS.replace("--begin", "--array=0-0 --begin") if array else WAITS
    [run] = send_runs(logs, [("r", {"run_id": "r", "plan": {}})], script, array)
    backup = tmp_path / "backup"
    shutil.copytree(logs, backup, symlinks=True)
    copy = RunPaths(backup / "r")
    assert cancel([copy])[0].problem == f"its folder is a copy of run {run.root}: cancel that"
    assert (status([copy])[0].job_id, status([copy])[0].state) == (None, "UNKNOWN")
    assert reconcile([copy]) == [] and copy.root.exists()
    assert slurm.run("squeue", "-h", "-r", "-j", job_of(run), "-o", "%T").strip() == "PENDING"
    (tmp_path / "link").symlink_to(logs)
    assert status([RunPaths(tmp_path / "link" / "r")])[0].state == "PENDING"  # another way to the same folder
    shutil.rmtree(logs)  # what is left is the run: it was moved
    assert cancel([copy])[0].problem is None
