"""A run that trains is queued again, and signals that end nothing, on a real Slurm."""

from __future__ import annotations

import json

import pytest
from login_node import LoginNode, job_id, printed, steps_of, strict_templates, trains, until

from hpc_llm.records.files import read_json_lines

pytestmark = pytest.mark.slurm

STEPS = 400
"""So many that the run is not over before it is queued again, on a busy machine either."""
WORDS = (
    "--cluster=taiwania2", "--partition=gtest", "--account=ACD110018", "--method=z2", "--model=tiny",
    "--gpus-per-node=0", f"--steps={STEPS}", "--warmup-steps=1", "--sequence-length=32", "--set=precision=fp32",
    "--time=00:10:00",
)  # fmt: skip


def test_a_requeued_run_keeps_its_steps(node: LoginNode) -> None:
    [run] = node.submit(*WORDS)
    trains(run)
    node.slurm.run("scontrol", "requeue", job_id(run))
    until("the second try has begun", lambda: len(run.earlier_tries()) == 1)
    node.wait([run])
    [first] = run.earlier_tries()
    kept = steps_of(first)
    assert 3 <= len(kept) < STEPS and kept == list(range(1, len(kept) + 1))
    assert steps_of(run) == list(range(1, STEPS + 1)), printed(run)
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
    [run] = node.submit(*WORDS, "--steps=100", "--set=tasks_per_node=2", "--set=launcher=srun")
    trains(run)
    for words in (("--signal=USR1",), ("--batch", "--signal=USR1"), ("--full", "--signal=USR2")):
        node.slurm.run("scancel", *words, job_id(run))
    [status] = node.wait([run])
    assert (status["outcome"], status["exit_code"]) == ("COMPLETED", 0), printed(run)
    for rank in range(2):
        assert f"pretrain_llm: rank {rank} of 2 on " in run.stderr.read_text()
    assert steps_of(run) == list(range(1, 101))


def test_a_search_that_is_queued_again_goes_on_behind_the_tries_that_are_done(node: LoginNode) -> None:
    """Of one sequence a step there is one size, which is tried and confirmed."""
    words = [word for word in WORDS if not word.startswith(("--steps", "--warmup"))]
    more = ("--task=tune", "--steps=3", "--warmup-steps=0", "--set=kept_global_batch=1", "--set=confirm_steps=5")
    [run] = node.submit(*words, *more, "--set=launcher=srun", "--set=tasks_per_node=1")
    until("the second try has begun", run.search_try(2).stdout.exists)
    node.slurm.run("scontrol", "requeue", job_id(run))
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", printed(run)
    result = json.loads(run.result.read_text())
    tries = [(one["confirms"], one["verdict"]) for one in result["tries"]]
    # The second was cut off: it says so, or the kill came before it could.
    assert tries in [[(False, "FITS"), (True, end), (True, "FITS")] for end in ("CUT", "LOST")]
    assert result["search"][0]["largest"]["confirmed"] and len(list(read_json_lines(run.started))) == 2


def test_a_search_goes_on_behind_a_try_that_failed_whatever_a_template_sets(node: LoginNode) -> None:
    words = [word for word in WORDS if not word.startswith(("--steps", "--warmup"))]
    more = ("--task=tune", "--steps=3", "--warmup-steps=0", "--set=kept_global_batch=1", "--set=confirm_steps=5")
    one_rank = ("--set=launcher=srun", "--set=tasks_per_node=1", f"--templates={strict_templates(node.folder)}")
    [run] = node.submit(*words, *more, *one_rank)
    step = f"{job_id(run)}.0"
    until(
        "the first try has begun",
        lambda: f"{step} " in node.slurm.run("squeue", "--steps", "--noheader", "--format=%i "),
    )
    node.slurm.run("scancel", "--signal=KILL", step)
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", printed(run)
    tries = json.loads(run.result.read_text())["tries"]
    assert len(tries) > 1 and tries[0]["verdict"] != "FITS" and tries[-1]["verdict"] == "FITS", tries
