"""Told before the end, cancelled, queued again: a run saves and goes on, on a real Slurm with two ranks."""

from __future__ import annotations

import json
import os

import pytest
from login_node import LoginNode, job_id, printed, steps_of, strict_templates, trains, until

from hpc_llm.records.checkpoints import kept_in
from hpc_llm.records.run import RunPaths

pytestmark = pytest.mark.slurm

WORDS = (
    "--cluster=taiwania2", "--partition=gtest", "--account=ACD110018", "--method=z2", "--model=tiny",
    "--gpus-per-node=0", "--warmup-steps=1", "--sequence-length=32", "--set=precision=fp32", "--set=tasks_per_node=2",
    "--set=launcher=srun", "--time=00:10:00",
)  # fmt: skip


def newest(run: RunPaths) -> int:
    return kept_in(run.root)[-1].step


def test_a_run_that_is_told_before_its_end_saves_times_out_and_goes_on_elsewhere(node: LoginNode) -> None:
    asked = ("--steps=1000000", "--save-every=1000000", "--sbatch=signal=B:USR1@60")
    [run] = node.submit(*WORDS, *asked)
    trains(run)
    node.slurm.run("scancel", "--batch", "--signal=USR1", job_id(run))  # what Slurm sends at its time
    [status] = node.wait([run])
    step = newest(run)
    assert status["outcome"] == "TIMEOUT", printed(run)
    assert "the time limit was near" in json.loads(run.exit.read_text())["reason"]
    assert json.loads(run.exit.read_text())["signal"] == "USR1" and steps_of(run)[-1] == step
    way = f"what `hpc-llm diagnose {run.run_id} --logs {run.root.parent}` says"
    assert f"go on with {way}" in json.loads(run.result.read_text())["outcome_reason"]
    [rest] = node.submit(*WORDS, f"--steps={step + 6}", "--save-every=4", f"--resume={run.run_id}")
    [mark] = run.wanted_by.iterdir()  # for `clean`, whatever folder it is asked about
    assert json.loads(mark.read_text())["run"] == str(rest.root)
    [status] = node.wait([rest])
    assert status["outcome"] == "COMPLETED", printed(rest)
    assert steps_of(rest) == list(range(step + 1, step + 7)) and newest(rest) == step + 6


def test_a_template_that_ends_at_an_error_of_its_own_lines_ends_no_run_that_saves(node: LoginNode) -> None:
    templates = strict_templates(node.folder)
    asked = ("--steps=1000000", "--save-every=1000000", "--sbatch=signal=B:USR1@60", f"--templates={templates}")
    [run] = node.submit(*WORDS, *asked)
    assert "\nset -euo pipefail\n" in run.script.read_text()
    trains(run)
    node.slurm.run("scancel", "--batch", "--signal=USR1", job_id(run))
    [status] = node.wait([run])
    assert status["outcome"] == "TIMEOUT", printed(run)
    record = json.loads(run.exit.read_text())
    assert (record["signal"], record["stage"]) == ("USR1", "launch") and "the time limit was near" in record["reason"]
    assert steps_of(run)[-1] == newest(run)


def test_a_cancelled_run_saves_and_stays_cancelled(node: LoginNode) -> None:
    [run] = node.submit(*WORDS, "--steps=1000000", "--save-every=1000000")
    trains(run)
    node.do("cancel", run.run_id)
    [status] = node.wait([run])
    assert status["outcome"] == "CANCELLED", printed(run)
    until("the checkpoint is seen", lambda: bool(kept_in(run.root)))
    assert newest(run) == steps_of(run)[-1]


def test_a_run_that_is_queued_again_goes_on_by_itself(node: LoginNode) -> None:
    [run] = node.submit(*WORDS, "--steps=150", "--save-every=100000")
    trains(run)
    node.slurm.run("scontrol", "requeue", job_id(run))
    until("the second try has begun", lambda: len(run.earlier_tries()) == 1)
    [status] = node.wait([run])
    assert status["outcome"] == "COMPLETED", printed(run)
    [first] = run.earlier_tries()
    last = steps_of(first)[-1]
    assert steps_of(first) == list(range(1, last + 1)) and steps_of(run) == list(range(last + 1, 151))
    result = json.loads(run.result.read_text())
    assert result["resumed"]["step"] == last and (run.model / "model.safetensors").is_file()
    listed = node.do("parse", "logs", "--format", "json") if last else ""
    assert "COMPLETED" in listed


def test_a_run_that_waits_or_runs_is_not_gone_on_with_by_a_second_job(node: LoginNode) -> None:
    [run] = node.submit(*WORDS, "--steps=1000000", "--save-every=20")
    trains(run, steps=25)
    until("the checkpoint is seen", lambda: bool(kept_in(run.root)))
    resume, jobs = ("submit", f"--resume={run.run_id}"), sorted(path.name for path in node.logs.iterdir())

    def refused(state: str, *more: str) -> None:
        done = node.ask(*resume, *more)
        assert done.returncode == 2 and sorted(path.name for path in node.logs.iterdir()) == jobs, done.stderr
        said = f"--resume {run.run_id}: that run is {state} as job {job_id(run)} and goes on by itself"
        assert said in done.stderr and f"`hpc-llm cancel {run.run_id}`" in done.stderr

    refused("RUNNING")
    refused("RUNNING", "--dry-run")
    refused("RUNNING", *WORDS, "--steps=1000000")
    node.slurm.run("scontrol", "requeue", job_id(run))
    until("it waits", lambda: node.status([run])[0]["state"] == "PENDING")
    refused("PENDING")
    said = printed(run)
    assert "saved behind step" in said and "where the job is queued again it goes on by itself" in said
    assert "submit --resume" not in said
    branch = node.ask("submit", "--dry-run", f"--resume={kept_in(run.root)[-1].path}")
    assert branch.returncode == 0, branch.stderr
    silent = node.folder / "silent"
    silent.mkdir()
    for command in ("squeue", "sacct"):
        (silent / command).write_text(
            "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n"
        )
        (silent / command).chmod(0o755)
    path = f"{silent}{os.pathsep}{node.slurm.environ['PATH']}"
    told = node.ask(*resume, "--dry-run", environ={"PATH": path})
    assert told.returncode == 0 and "whether that run is over is not known" in told.stderr, told.stderr
    node.do("cancel", run.run_id)
    node.wait([run])


def test_two_may_branch_off_a_run_that_is_over_and_only_one_makes_a_run(node: LoginNode) -> None:
    [run] = node.submit(*WORDS, "--steps=6", "--save-every=6")
    assert node.wait([run])[0]["outcome"] == "COMPLETED", printed(run)
    words = ("submit", f"--resume={run.run_id}", "--steps=12", "--sbatch=hold")
    branches = [node.start(*words) for _ in range(2)]
    assert [one.wait(timeout=300) for one in branches] == [0, 0]
    same = [node.start(*words, "--run-id=one") for _ in range(3)]
    assert sorted(one.wait(timeout=300) for one in same) == [0, 2, 2], [one.communicate() for one in same]
    assert node.ask(*words, f"--run-id={run.run_id}").returncode == 2
    names = sorted(path.name for path in node.logs.glob("[!.]*"))
    assert len(names) == 4 and node.status([RunPaths(node.logs / "one")])[0]["state"] == "PENDING"
    node.do("cancel", *names)
