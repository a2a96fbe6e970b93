"""Schedulers from anywhere: one file of another package is submitted to, asked and told to cancel like Slurm."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from copied_ranks import FOLDER, PLACE
from installed import OUTSIDE, install
from last_said import last_said

from hpc_llm.errors import ProfileError
from hpc_llm.site import schedulers
from hpc_llm.site.schedulers import JobVariables, SchedulerFacts, known, scheduler_of

ENTRY = Path(sys.executable).with_name("hpc-llm")
PROFILE = "extends: local\nscheduler: toy\ngpu: {vendor: none, per_node: 0}\n"
ASKED = ("--cluster=mine", "--method=ddp", "--model=tiny", "--set=precision=fp32")
SLEEP = "launch sleep 300\n"


class Site:
    """A machine with the toy scheduler installed beside hpc-llm, and a profile that names it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "toy's home"
        self.home.mkdir()
        module = (OUTSIDE / "scheduler.py").read_text()
        point = {"hpc_llm.schedulers": "toy = their_scheduler:SCHEDULER"}
        packages = install(folder / "packages", {"their_scheduler": module}, point)
        (folder / "clusters").mkdir()
        (folder / "clusters" / "mine.yaml").write_text(PROFILE)
        (folder / "slow").mkdir()
        (folder / "slow" / "prelude.sh.j2").write_text("# nothing\n")
        (folder / "slow" / "launch.sh.j2").write_text(SLEEP)
        self.environ = {**os.environ, "PYTHONPATH": str(packages), "TOY_HOME": str(self.home)}

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [ENTRY, *words], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def do(self, *words: str) -> str:
        done = self.ask(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str) -> list[str]:
        runs = json.loads(self.do(*last_said(["submit", "--json", *ASKED, *words])))["runs"]
        return [one["run_id"] for one in runs]

    def sleep(self, *words: str) -> str:
        """A run that goes on until it is ended."""
        [run] = self.submit("--templates=slow", *words)
        until(lambda: self.folder.joinpath("logs", run, "started.jsonl").exists())
        return run

    def status(self, run: str) -> tuple[str, str | None, str | None]:
        [found] = json.loads(self.do("status", "--json", run))["runs"]
        return found["state"], found["outcome"], found["job_id"]


def until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def site(own_folder: Path) -> Site:
    return Site(own_folder)


def test_those_that_come_along_are_the_packages_of_the_folder() -> None:
    folder = Path(schedulers.__file__).parents[1] / "schedulers"
    assert set(known()) == {path.parent.name for path in folder.glob("*/__init__.py")} == {"local", "slurm"}


def test_nothing_outside_of_their_packages_compares_the_name_of_one() -> None:
    """What differs between schedulers is a fact of each (`site/schedulers.py`), so that one from elsewhere is treated by what it is."""
    package, names = Path(schedulers.__file__).parents[1], set(known())
    inside = {package / "schedulers" / name for name in names}
    found = [
        f"{path.relative_to(package)}:{inner.lineno}"
        for path in package.rglob("*.py")
        if path.parent not in inside
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Compare, ast.match_case))
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and inner.value in names
    ]
    assert not found


def test_its_script_asks_for_its_job_and_knows_it_by_its_variables(site: Site) -> None:
    text = site.do("render", *ASKED, "--time=00:10:00")
    assert text.startswith("#!/bin/bash\n#TOY please\n") and "SBATCH" not in text
    assert 'this_job=("${TOY_ID:-}" "" "${HOSTNAME:-}" "${TOY_NAME:-}"\n  "null" "0")' in text
    assert "launch_within 600" in text  # it keeps no time
    told = site.ask("render", *ASKED, "--partition=p", "--account=a", "--sbatch=qos=high")
    for what in ("partition p", "account a", "--sbatch qos"):
        assert f"{what} has no meaning for Toy and is left out" in told.stderr
    refused = site.ask("render", *ASKED, "--nodes=2")
    assert (
        refused.returncode == 2 and "2 nodes: cluster mine has Toy, of one node a job. Use --nodes 1." in refused.stderr
    )


@pytest.mark.train
def test_a_run_is_submitted_followed_and_ends_as_on_slurm(site: Site, copies: Path) -> None:
    site.environ |= {PLACE: str(copies), "PYTHONPATH": f"{FOLDER}:{site.environ['PYTHONPATH']}"}
    [run] = site.submit("--steps=6", "--sequence-length=32", "--wait")
    assert site.status(run) == ("COMPLETED", "COMPLETED", "toy_1.x")
    folder = site.folder / "logs" / run
    assert json.loads((folder / "started.jsonl").read_text())["job_id"] == "toy_1.x"
    assert json.loads((folder / "exit.json").read_text())["job_id"] == "toy_1.x"


def test_a_sweep_is_a_job_each_and_one_of_them_is_cancelled(site: Site) -> None:
    first, second = site.submit("--templates=slow", "--method=ddp,z1")
    assert {site.status(one)[2] for one in (first, second)} == {"toy_1.x", "toy_2.x"}
    until(lambda: all(site.folder.joinpath("logs", one, "started.jsonl").exists() for one in (first, second)))
    site.do("cancel", "toy_2.x")  # by the id of its job
    until(lambda: site.status(second)[0] == "CANCELLED")
    assert site.status(second)[1] == "CANCELLED" and site.status(first)[0] == "RUNNING"
    site.do("cancel", first)
    until(lambda: site.status(first)[1] == "CANCELLED")


def test_a_job_of_which_no_id_was_written_down_is_found_and_another_one_is_not_ours(site: Site) -> None:
    (site.home / "forgetful").touch()
    run = site.sleep()
    assert site.status(run) == ("RUNNING", None, "toy_1.x")
    assert json.loads((site.folder / "logs" / run / "job.json").read_text())["job_id"] == "toy_1.x"  # adopted
    uuid = site.home / "toy_1.x" / "uuid"
    ours = uuid.read_text()
    uuid.write_text("8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b")
    refused = site.ask("cancel", run)
    assert refused.returncode == 1 and "Toy has no job toy_1.x that is proven to be this run's" in refused.stderr
    assert not (site.home / "toy_1.x" / "cancelled").exists()
    uuid.write_text(ours)
    site.do("cancel", run)


def test_what_it_refuses_leaves_nothing(site: Site) -> None:
    (site.home / "closed").touch()
    refused = site.ask("submit", *ASKED)
    assert refused.returncode == 1 and "toy is closed" in refused.stderr
    assert not [path for path in (site.folder / "logs").iterdir() if not path.name.startswith(".")]


def test_runs_of_a_scheduler_that_is_gone_are_unknown_and_left_alone(site: Site) -> None:
    run = site.sleep()
    installed = site.environ.pop("PYTHONPATH")
    state, outcome, job_id = site.status(run)
    assert (state, outcome, job_id) == ("UNKNOWN", None, "toy_1.x")
    assert "there is no scheduler 'toy'" in site.do("status", "--json", run)
    refused = site.ask("cancel", run)
    assert refused.returncode == 1 and "there is no scheduler 'toy'" in refused.stderr
    assert site.ask("reconcile").returncode == 0 and (site.folder / "logs" / run).is_dir()
    site.environ["PYTHONPATH"] = installed
    site.do("cancel", run)


def test_where_it_is_not_installed_or_not_here_that_is_said(site: Site) -> None:
    site.environ["TOY_HOME"] = "/nowhere"
    refused = site.ask("submit", *ASKED)
    assert refused.returncode == 1 and "toy is not on PATH: submit from a login node of cluster mine." in refused.stderr
    del site.environ["PYTHONPATH"]
    refused = site.ask("render", *ASKED)
    assert refused.returncode == 2 and "there is no scheduler 'toy'" in refused.stderr
    assert "Valid: auto, local, slurm." in refused.stderr


class Nowhere(SchedulerFacts):
    """One that nothing can be submitted to."""

    def is_here(self) -> bool:
        return False


@pytest.mark.parametrize("name", ["", "a b", "$(x)", "-n", "é"])
def test_names_that_a_record_could_not_hold_are_refused(name: str) -> None:
    made = Nowhere()
    made.name = name
    with pytest.raises(ProfileError, match="is no name of a scheduler: use letters"):
        schedulers.register(made)


def test_a_registered_one_wins_and_an_unknown_one_is_nobody() -> None:
    made = Nowhere()
    made.name, made.variables = "mine", JobVariables(job_id=("A", "B"))
    schedulers.register(made)
    try:
        assert schedulers.find_scheduler("mine") is made
        assert made.variables.in_bash()["job_id"] == "${A:-${B:-}}"
    finally:
        schedulers.unregister("mine")
    assert not scheduler_of("mine").is_here() and not scheduler_of("mine").is_this_machine
