"""What passes the check of sbatch's options is what Slurm sees; what does not is refused before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from login_node import LoginNode, job_id
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

ASKED = (
    "submit", "--cluster=taiwania2", "--account=ACD110018", "--method=z3", "--model=tiny", "--partition=gtest",
    "--gpus-per-node=0", "--set=precision=fp32", "--sbatch=hold",
)  # fmt: skip


@pytest.fixture(scope="module")
def node(
    slurm: ScratchSlurm, site: ScratchSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoginNode]:
    login = LoginNode(tmp_path_factory.mktemp("asking"), slurm)
    site.write_profiles(login.folder)
    yield login
    login.ask("cancel", *runs_of(login))


def runs_of(node: LoginNode) -> list[str]:
    return sorted(path.name for path in node.logs.glob("[!.]*"))


def seen(node: LoginNode, *words: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    """What Slurm says of the held job of a request."""
    [run] = node.submit(*ASKED[1:], *words, environ=environ)
    text = node.slurm.run("scontrol", "--oneliner", "show", "job", job_id(run))
    return dict(re.findall(r"(\S+?)=(\S*)", text))


def test_slurm_sees_the_options_that_pass_and_nothing_of_the_shell(node: LoginNode) -> None:
    options = {
        "constraint=v100": ("Features", "v100"),
        "nice=7": ("Nice", "7"),
        "exclude=tw2": ("ExcNodeList", "tw2"),
        "--no-requeue": ("Requeue", "0"),
        "mem=5G": ("MinMemoryNode", "5G"),
        "begin=now+1hour": ("Reason", "JobHeldUser"),
        "cpus-per-task=3": ("CPUs/Task", "3"),
    }
    words = [f"--sbatch={option}" for option in options]
    shell = {"SBATCH_PARTITION": "gp4d", "SBATCH_TIMELIMIT": "99", "SBATCH_EXCLUSIVE": "user", "SBATCH_NICE": "3"}
    job = seen(node, *words, "--time=00:07:00", "--nodes=2", environ=shell)
    for name, value in options.values():
        assert job[name] == value
    assert (job["Partition"], job["TimeLimit"], job["NumNodes"]) == ("gtest", "00:07:00", "2-2")
    assert job["OverSubscribe"] == "OK"


def test_a_shells_variables_are_said_to_have_no_effect(node: LoginNode) -> None:
    done = node.ask(*ASKED, "--dry-run", environ={"SBATCH_PARTITION": "gp4d", "SBATCH_ACCOUNT": "ACD1"})
    assert "SBATCH_PARTITION of this shell has no effect on the job" in done.stderr
    assert "SBATCH_ACCOUNT of" not in done.stderr


@pytest.mark.parametrize(
    "option", ["-N2", "nod=2", "-t 99", "--array=0-1", "qos=a"]
)
def test_what_sbatch_would_take_and_the_plan_would_not_know_is_refused(node: LoginNode, option: str) -> None:
    before = runs_of(node)
    twice = ["--sbatch=qos=b"] if option == "qos=a" else []
    done = node.ask(*ASKED, f"--sbatch={option}", *twice)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert runs_of(node) == before
