"""hpc-llm on a real Slurm with real environment modules: each of the three clusters, and each way a job can end.

All jobs are submitted together and waited for together; the tests look at one each.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from login_node import LoginNode, job_id, printed, until
from scratch_site import CLUSTERS, ScratchSite, executable
from scratch_slurm import ScratchSlurm

from hpc_llm.records.run import RunPaths, Stop

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

TINY = (
    "--method=z3", "--model=tiny", "--gpus-per-node=0", "--steps=4", "--warmup-steps=1", "--sequence-length=32",
    "--set=precision=fp32", "--time=00:10:00",
)  # fmt: skip
"""A training small enough for the CPU of a test machine, the real one all the same."""

REQUEST = {
    "taiwania2": ("--cluster=taiwania2", "--partition=gtest", "--account=ACD110018"),
    "mi210": ("--cluster=mi210", "--partition=sky"),
    "delta": ("--cluster=delta", "--partition=gpuA100x4", "--account=bbka-delta-gpu", "--sbatch=mem=8G"),
}
"""What a user adds on each cluster."""

TWO_BY_TWO = ("--nodes=2", "--set=tasks_per_node=2")


@dataclass
class Campaign:
    """One run of each kind, and what became of them."""

    node: LoginNode
    runs: dict[str, RunPaths] = field(default_factory=dict)
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    while_running: dict[str, Any] = field(default_factory=dict)

    def result(self, name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.runs[name].result.read_text())
        return result

    def exit(self, name: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.runs[name].exit.read_text())
        return record


@pytest.fixture(scope="module")
def node(
    slurm: ScratchSlurm, site: ScratchSite, quick_site: ScratchSite, tmp_path_factory: pytest.TempPathFactory
) -> LoginNode:
    """A login node whose profiles are those of the three sites, and a few that are wrong on purpose.

    At `delta-as-it-is` all ranks start by themselves, elsewhere they are copies.
    """
    login = LoginNode(tmp_path_factory.mktemp("user"), slurm)
    quick_site.write_profiles(login.folder)
    login.add_cluster("delta-as-it-is", **site.profile("delta"))
    load = ["cmake", "no-such-module/1.0"]
    login.add_cluster("no-module", **_over(quick_site.profile("taiwania2"), load=load))
    missing = str(quick_site.folder / "envs" / "missing")
    login.add_cluster("no-env", **_over(quick_site.profile("taiwania2"), python={"env": missing}))
    login.add_cluster("no-hook", **_over(quick_site.profile("mi210"), python={"hook": "/nowhere/conda.sh"}))
    shipped = Path(__file__).parents[2] / "clusters" / "taiwania2.yaml"
    card = yaml.safe_load(shipped.read_text())["gpu"]  # a vendor other than the profile's takes back its card
    login.add_cluster("with-gpus", extends="taiwania2", gpu={**card, "per_node": 8}, request={"extra": []})
    return login


def _over(profile: dict[str, Any], **prelude: Any) -> dict[str, Any]:
    return {**profile, "prelude": {**profile["prelude"], **prelude}}


@pytest.fixture(scope="module")
def campaign(node: LoginNode) -> Campaign:
    it = Campaign(node)
    slow = (*TINY, "--steps=1000000", "--set=tasks_per_node=1")
    [it.runs["timeout"]] = node.submit(*REQUEST["delta"], *slow)
    until("the first run trains", lambda: _steps(it.runs["timeout"]) >= 3)
    it.while_running = node.status([it.runs["timeout"]])[0]
    node.slurm.expire(job_id(it.runs["timeout"]))
    [it.runs["taiwania2 2x2"]] = node.submit(*REQUEST["taiwania2"], *TINY, *TWO_BY_TWO)
    [it.runs["delta 2x2"]] = node.submit(*REQUEST["delta"], *TINY, *TWO_BY_TWO, "--cluster=delta-as-it-is")
    [it.runs["mi210 1x2"]] = node.submit(*REQUEST["mi210"], *TINY, "--method=z2o", "--set=tasks_per_node=2")
    it.runs["array 0"], it.runs["array 1"] = node.submit(*REQUEST["delta"], *TINY, "--method=z2,z3", "--profile=nsys")
    for name in ("no-module", "no-env"):
        [it.runs[name]] = node.submit(*REQUEST["taiwania2"], *TINY, f"--cluster={name}", "--force")
    [it.runs["no-hook"]] = node.submit(*REQUEST["mi210"], *TINY, "--cluster=no-hook", "--force")
    gpus = ("--gpus-per-node=2", "--set=launcher=srun")
    [it.runs["no GPU there"]] = node.submit(*REQUEST["taiwania2"][1:3], *TINY, "--cluster=with-gpus", *gpus)
    held = node.submit(*REQUEST["taiwania2"], *TINY, "--method=z2,z3", "--sbatch=hold")
    it.runs["held 0"], it.runs["held 1"] = held
    [it.runs["cancelled"]] = node.submit(*REQUEST["taiwania2"], *slow, "--set=launcher=srun")
    it.while_running["cancel held"] = node.do("cancel", "--json", held[1].run_id)
    until("a run to cancel has started", lambda: "hpc-llm:" in printed(it.runs["cancelled"]))
    node.do("cancel", it.runs["cancelled"].run_id, held[0].run_id)
    it.status = dict(zip(it.runs, node.wait(list(it.runs.values())), strict=True))
    return it


def _steps(run: RunPaths) -> int:
    return len(run.steps.read_text().splitlines()) if run.steps.exists() else 0


@pytest.mark.parametrize("name", ["taiwania2 2x2", "delta 2x2", "mi210 1x2", "array 0", "array 1"])
def test_a_job_really_trains(campaign: Campaign, name: str) -> None:
    status, result = campaign.status[name], campaign.result(name)
    assert (status["state"], status["outcome"], status["exit_code"]) == ("COMPLETED", "COMPLETED", 0), printed(
        campaign.runs[name]
    )
    assert result["measured_steps"] == 3
    assert status["tokens_per_second"] == result["tokens_per_second"] > 0
    assert (status["step"], status["steps"]) == (4, 4)


@pytest.mark.parametrize("name", ["taiwania2 2x2", "delta 2x2"])
def test_two_nodes_with_two_tasks_each_are_one_training_of_four_ranks(campaign: Campaign, name: str) -> None:
    assert campaign.result(name)["world_size"] == 4
    steps = campaign.node.slurm.run("sacct", "-n", "-P", "-j", job_id(campaign.runs[name]), "-o", "JobID,NodeList")
    assert any(nodes.endswith("[1-2]") for nodes in steps.split())


def test_mpirun_starts_the_ranks_where_the_site_does_it_so(campaign: Campaign) -> None:
    assert campaign.result("mi210 1x2")["world_size"] == 2
    assert "mpirun -np 2" in campaign.runs["mi210 1x2"].script.read_text()


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("taiwania2 2x2", "miniconda3/conda24.5.0_py3.9:cmake/3.31:nvhpc-24.11_hpcx-2.20_cuda-12.6"),
        ("mi210 1x2", "rocm/6.4:ucx/1.18.1:ucc/1.4.4:openmpi/5.0.8"),
        ("delta 2x2", "pytorch-conda/2.8:aws-ofi-nccl/1.14"),
    ],
)
def test_the_site_s_modules_and_python_are_active_in_the_job(
    campaign: Campaign, site: ScratchSite, quick_site: ScratchSite, name: str, modules: str
) -> None:
    said = campaign.runs[name].stdout.read_text().splitlines()[0]
    python = (site if name == "delta 2x2" else quick_site).env / "bin" / "python"
    assert str(python) in said
    assert said.endswith(f"modules {modules}")


def test_the_code_that_runs_is_the_one_beside_the_runs(campaign: Campaign) -> None:
    support, snapshot = sorted((campaign.node.logs / ".code").iterdir(), key=lambda path: path.suffix)
    assert f"\nsupport={support};" in campaign.runs["taiwania2 2x2"].script.read_text()
    assert f'\ncode_archive="${{support%/*}}"/{snapshot.name}\n' in support.read_text()
    assert "hpc_llm/worker/pretrain_llm.py" in zipfile.ZipFile(snapshot).namelist()


def test_an_array_is_one_job_and_each_task_writes_to_its_own_run(campaign: Campaign) -> None:
    first, second = campaign.runs["array 0"], campaign.runs["array 1"]
    assert job_id(first).removesuffix("_0") == job_id(second).removesuffix("_1")
    for run in (first, second):
        assert run.stdout.read_text().startswith("hpc-llm: ")
        assert json.loads(run.exit.read_text())["run_id"] == run.run_id
    methods = [json.loads(run.experiment.read_text())["plan"]["method"] for run in (first, second)]
    assert methods == ["z2", "z3"]


def test_a_profiler_comes_of_a_module_and_stands_around_the_ranks(campaign: Campaign) -> None:
    for run in (campaign.runs["array 0"], campaign.runs["array 1"]):
        assert "nsight-systems/2026.1" in run.stdout.read_text().splitlines()[0]
        assert [path.name for path in run.profiles()] == ["profile-rank-0.nsys-rep"]


@pytest.mark.parametrize(
    ("name", "stop", "sentence"),
    [
        ("no-module", Stop.MODULE_FAILED, "module no-such-module/1.0 failed to load"),
        ("no-env", Stop.ENV_NOT_ACTIVE, "did not activate"),
        ("no-hook", Stop.NO_CONDA, "/nowhere/conda.sh cannot be read"),
    ],
)
def test_a_broken_site_stops_the_job_with_one_clear_line(
    campaign: Campaign, name: str, stop: Stop, sentence: str
) -> None:
    status = campaign.status[name]
    assert (status["state"], status["outcome"], status["exit_code"]) == ("FAILED", "FAILED", stop.value)
    assert sentence in status["reason"]
    said = [line for line in printed(campaign.runs[name]).splitlines() if line.startswith("hpc-llm: ")]
    assert len(said) == 1 and sentence in said[0]
    assert campaign.exit(name)["stage"] == "prelude"


def test_a_node_without_its_gpus_is_a_failure_and_not_a_training_on_the_cpu(campaign: Campaign) -> None:
    status = campaign.status["no GPU there"]
    assert status["outcome"] == "FAILED" and status["exit_code"] not in (None, 0)
    assert "the plan wants 2 GPUs per node" in status["reason"]
    assert "#SBATCH --gres=gpu:2" in campaign.runs["no GPU there"].script.read_text()


def test_status_shows_how_far_a_running_job_is(campaign: Campaign) -> None:
    seen = campaign.while_running
    assert (seen["state"], seen["outcome"], seen["exit_code"]) == ("RUNNING", None, None)
    assert seen["step"] >= 3 and seen["steps"] == 1000000
    assert seen["tokens_per_second"] > 0 and seen["elapsed_s"] > 0 and seen["started_at"].endswith("+00:00")
    assert (seen["cluster"], seen["method"]) == ("delta", "z3")


def test_a_job_at_its_time_limit_is_a_timeout(campaign: Campaign) -> None:
    status = campaign.status["timeout"]
    assert (status["state"], status["outcome"]) == ("TIMEOUT", "TIMEOUT")
    assert "DUE TO TIME LIMIT" in printed(campaign.runs["timeout"])


def test_a_running_job_is_cancelled_with_all_its_ranks(campaign: Campaign) -> None:
    status = campaign.status["cancelled"]
    assert (status["state"], status["outcome"]) == ("CANCELLED", "CANCELLED")


def test_one_task_of_an_array_is_cancelled_before_it_starts(campaign: Campaign) -> None:
    [cancelled] = json.loads(campaign.while_running["cancel held"])["runs"]
    job = job_id(campaign.runs["held 1"])
    expected = {"run_id": campaign.runs["held 1"].run_id, "job_id": job, "was_over": False, "outcome": None}
    assert cancelled == {**expected, "problem": None, "reason": None}
    assert campaign.status["held 1"]["outcome"] == "CANCELLED"
    assert campaign.status["held 1"]["started_at"] is None


def test_cancel_says_what_was_already_over(campaign: Campaign) -> None:
    done = campaign.node.do("cancel", "--json", campaign.runs["no-env"].run_id, campaign.runs["array 0"].run_id)
    assert [(run["was_over"], run["outcome"]) for run in json.loads(done)["runs"]] == [
        (True, "FAILED"),
        (True, "COMPLETED"),
    ]
    assert campaign.node.status([campaign.runs["array 0"]])[0]["outcome"] == "COMPLETED"


def test_logs_prints_what_the_run_printed(campaign: Campaign) -> None:
    run = campaign.runs["taiwania2 2x2"]
    assert campaign.node.do("logs", run.run_id) == run.stdout.read_text()


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_render_prints_is_what_slurm_stores(node: LoginNode, cluster: str) -> None:
    words = (*REQUEST[cluster], *TINY, "--sbatch=hold", f"--run-id=same-{cluster}", "--name=it's a $(name)")
    shown = node.do("render", *words)
    [run] = node.submit(*words)
    assert node.slurm.stored_script(job_id(run)) == shown.encode() == run.script.read_bytes()
    node.do("cancel", run.run_id)


@pytest.mark.parametrize("name", ["it's", 'a "b" c', "a\\b", "a\\", "$(name) `x` ;#&", "100%j"])
def test_slurm_reads_a_job_name_as_it_was_given(node: LoginNode, name: str) -> None:
    [run] = node.submit(*REQUEST["mi210"], *TINY, "--sbatch=hold", f"--name={name}")
    uuid = json.loads(run.job.read_text())["uuid"]
    shown = node.slurm.run("squeue", "--noheader", "--format=%j", f"--jobs={job_id(run)}").rstrip("\n")
    assert shown == f"{name}-{uuid[:8]}"
    node.do("cancel", run.run_id)


def test_what_render_prints_is_what_slurm_stores_for_an_array(node: LoginNode) -> None:
    words = (*REQUEST["taiwania2"], *TINY, "--method=z2,z3,z3o", "--sbatch=hold", "--run-id=same")
    shown = node.do("render", *words)
    runs = node.submit(*words)
    array, _, _ = job_id(runs[0]).partition("_")
    assert node.slurm.stored_script(array) == shown.encode() == runs[2].script.read_bytes()
    node.do("cancel", *(run.run_id for run in runs))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--account=ACD999999",), "Invalid account"),
        (("--sbatch=reservation=nowhere",), "reservation is invalid"),
        (("--method=z2,z3", "--account=ACD999999"), "Invalid account"),
    ],
)
def test_a_refusal_of_sbatch_is_shown_and_leaves_no_run(node: LoginNode, words: tuple[str, ...], message: str) -> None:
    before = _entries(node.logs)
    refused = node.ask("submit", *REQUEST["taiwania2"], *TINY, *words)
    assert refused.returncode == 1
    assert message in refused.stderr and "Traceback" not in refused.stderr
    assert _entries(node.logs) == before


def test_a_request_that_the_site_forbids_never_reaches_sbatch(node: LoginNode) -> None:
    before = _entries(node.logs)
    unaccounted = node.ask("submit", "--cluster=taiwania2", "--partition=gtest", *TINY)
    assert (unaccounted.returncode, "account" in unaccounted.stderr) == (2, True)
    too_long = node.ask("submit", *REQUEST["taiwania2"], *TINY, "--time=10:00:00")
    assert (too_long.returncode, "gp1d" in too_long.stderr) == (2, True)
    assert _entries(node.logs) == before


def test_the_user_s_sbatch_variables_do_not_reach_the_job(node: LoginNode) -> None:
    words = (*REQUEST["taiwania2"], *TINY, "--sbatch=hold")
    environ = {"SBATCH_PARTITION": "sky", "SBATCH_TIMELIMIT": "1", "SBATCH_EXPORT": "ALL"}
    [run] = node.submit(*words, environ=environ)
    assert node.slurm.run("squeue", "-h", "-j", job_id(run), "-o", "%P %l").split() == ["gtest", "10:00"]
    node.do("cancel", run.run_id)


def test_a_killed_submit_loses_no_job(slurm: ScratchSlurm, tmp_path: Path) -> None:
    """kill -9 while sbatch is at work: Slurm has the job a moment later, and the next look finds it."""
    node, slow = LoginNode(tmp_path, slurm), tmp_path / "bin" / "sbatch"
    executable(slow, '#!/bin/sh\ntouch "$0.asked"\nsleep 1\nexec /usr/bin/sbatch "$@"\n')
    words = ("--cluster=taiwania2", "--method=z3", "--model=tiny", "--account=ACD110018", "--sbatch=hold", "--force")
    path = f"{slow.parent}:{slurm.environ['PATH']}"
    command = node.start("submit", *words, "--wait", environ={"PATH": path})
    until("sbatch was asked", Path(f"{slow}.asked").exists)
    command.kill()
    command.communicate()
    until("the job is found", lambda: json.loads(node.do("status", "--json"))["runs"][0]["job_id"] is not None)
    [status] = json.loads(node.do("status", "--json"))["runs"]
    assert (status["state"], status["outcome"]) == ("PENDING", None)
    node.do("cancel", status["run_id"])
    assert json.loads(node.do("status", "--json"))["runs"][0]["outcome"] == "CANCELLED"


def _entries(logs: Path) -> set[str]:
    """Runs and arrays; the carried code may be there or not."""
    return {str(path.relative_to(logs)) for pattern in ("*", ".array-*") for path in logs.glob(pattern)} - {".code"}
