"""A run that trains is queued again, and signals that end nothing, on a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from login_node import LoginNode, job_id, printed, until
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

from hpc_llm.records.files import read_json_lines
from hpc_llm.records.run import RunPaths

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

STEPS = 800
WORDS = (
    "--cluster=taiwania2", "--partition=gtest", "--account=ACD110018", "--method=z2", "--model=tiny",
    "--gpus-per-node=0", f"--steps={STEPS}", "--warmup-steps=1", "--sequence-length=32", "--set=precision=fp32",
    "--time=00:10:00",
)  # fmt: skip


@pytest.fixture
def node(slurm: ScratchSlurm, site: ScratchSite, tmp_path: Path) -> LoginNode:
    login = LoginNode(tmp_path, slurm)
    site.write_profiles(login.folder)
    return login


def numbers(run: RunPaths) -> list[int]:
    return [row["step"] for row in read_json_lines(run.steps)]


def trains(run: RunPaths) -> None:
    until("it trains", lambda: len(numbers(run)) >= 3, seconds=120)


def test_a_requeued_run_keeps_its_steps(node: LoginNode) -> None:
    [run] = node.submit(*WORDS)
    trains(run)
    node.slurm.run("scontrol", "requeue", job_id(run))
    until("the second try has begun", lambda: len(run.earlier_tries()) == 1)
    node.wait([run])
    [first] = run.earlier_tries()
    kept = numbers(first)
    assert 3 <= len(kept) < STEPS and kept == list(range(1, len(kept) + 1))
    assert numbers(run) == list(range(1, STEPS + 1)), printed(run)
    result = json.loads(run.result.read_text())
    assert (result["outcome"], result["measured_steps"]) == ("COMPLETED", STEPS - 1)
    said = [(each["job_id"], each["cluster"], each["restart_count"]) for each in read_json_lines(run.started)]
    assert said == [(job_id(run), "scratch", 0), (job_id(run), "scratch", 1)]
    ends = [json.loads(each.exit.read_text()) for each in (first, run)]
    assert [(end["signal"], end["stage"], end["restart_count"]) for end in ends] == [
        ("TERM", "launch", 0),
        (None, "done", 1),
    ]


def test_a_signal_by_hand_shows_where_the_ranks_stand_and_ends_nothing(node: LoginNode) -> None:
    [run] = node.submit(*WORDS, "--steps=200", "--set=tasks_per_node=2", "--set=launcher=srun")
    trains(run)
    for words in (("--signal=USR1",), ("--batch", "--signal=USR1"), ("--full", "--signal=USR2")):
        node.slurm.run("scancel", *words, job_id(run))
    [status] = node.wait([run])
    assert (status["outcome"], status["exit_code"]) == ("COMPLETED", 0), printed(run)
    for rank in range(2):
        assert f"pretrain_llm: rank {rank} of 2 on " in run.stderr.read_text()
    assert numbers(run) == list(range(1, 201))
