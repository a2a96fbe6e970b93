"""Options that name nodes are held to the nodes of the partition, as Slurm lists them, before anything is queued."""

from __future__ import annotations

import pytest
from login_node import LoginNode, job_id
from scratch_slurm import ScratchSlurm

from hpc_llm.site.cluster import load_cluster

pytestmark = pytest.mark.slurm

ASKED = ("--cluster=delta", "--account=bbka-delta-gpu", "--method=z2", "--model=tiny", "--sbatch=hold")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--sbatch=exclude=delta[1-2]"],
            "--exclude=delta[1-2] leaves 0 of the 2 nodes of partition gpuA100x4, and the job takes 1. Take delta1 or delta2 out of it, or "
            "name another --partition.",
        ),
        (
            ["--sbatch=exclude=delta2", "--nodes=2"],
            "--exclude=delta2 leaves 1 of the 2 nodes of partition gpuA100x4, and the job takes 2. Take delta2 out of it, ask for 1 node "
            "with --nodes 1, or name another --partition.",
        ),
        (
            ["--sbatch=nodelist=delta1", "--sbatch=exclude=delta[1-2]"],
            "--nodelist=delta1 and --exclude=delta[1-2] both name delta1. Take what is to be left out of --nodelist.",
        ),
        (
            ["--sbatch=nodelist=tw1"],
            "--nodelist=tw1: partition gpuA100x4 has no node tw1, it has delta1, delta2. Name nodes of it, or another --partition.",
        ),
    ],
)
def test_a_job_that_names_its_nodes_away_is_refused(node: LoginNode, words: list[str], said: str) -> None:
    done = node.ask("submit", *ASKED, *words)
    assert done.returncode == 2 and said in done.stderr and not any(node.logs.glob("[!.]*"))


def test_a_feature_that_no_node_of_the_partition_has_is_among_what_is_told(node: LoginNode) -> None:
    node.add_cluster("v100", extends="taiwania2", account=None)
    done = node.ask("submit", "--cluster=v100", *ASKED[2:-1], "--partition=gp1d", "--sbatch=constraint=work")
    assert done.returncode == 1 and "Requested node configuration is not available" in done.stderr
    assert "--constraint=work" in done.stderr and "does not say which line" in done.stderr and "%f" in done.stderr


def test_of_a_partition_of_several_kinds_the_nodes_that_fit_are_counted(node: LoginNode, slurm: ScratchSlurm) -> None:
    slurm.run("scontrol", "create", "partitionname=mixed", "nodes=delta2,delta8")
    node.add_cluster(
        "wide",
        extends="delta",
        partitions=[{"name": "mixed", "default": True, "max_time": "1:00:00"}],
        gpu={**load_cluster("delta").gpu.model_dump(mode="json"), "per_node": 8},
        request={"extra": []},
        node={"cpus_per_gpu": 4, "mem_gb_per_gpu": 20},
    )
    try:
        words = ("submit", "--cluster=wide", *ASKED[1:])
        done = node.ask(*words, "--sbatch=exclude=delta8")
        said = "--exclude=delta8 leaves 0 of the 1 node with 8 GPUs or more of partition mixed, and the job takes 1. Take delta8 out of it"
        assert done.returncode == 2 and said in done.stderr
        [run] = node.submit(*words[1:], "--sbatch=exclude=delta2")
        slurm.run("scancel", job_id(run))
    finally:
        slurm.run("scontrol", "delete", "partitionname=mixed")


def test_where_the_node_that_is_left_is_away_that_is_told(node: LoginNode, slurm: ScratchSlurm) -> None:
    slurm.run("scontrol", "update", "nodename=delta2", "state=drain", "reason=repair")
    try:
        done = node.ask("submit", *ASKED, "--sbatch=exclude=delta1")
        assert done.returncode == 0
        assert (
            "leaves 1 of the 2 nodes of partition gpuA100x4, of which delta2 is drained: the job waits until"
            in done.stderr
        )
    finally:
        slurm.run("scontrol", "update", "nodename=delta2", "state=resume")
        node.ask("cancel", *(path.name for path in node.logs.glob("[!.]*")))


def test_what_leaves_enough_goes_to_slurm(node: LoginNode, slurm: ScratchSlurm) -> None:
    [run] = node.submit(*ASKED, "--sbatch=exclude=delta1")
    assert "ExcNodeList=delta1" in slurm.run("scontrol", "show", "job", job_id(run))
    slurm.run("scancel", job_id(run))
