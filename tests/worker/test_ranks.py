"""Every launcher's variables, as seen on real systems, become one set of ranks."""

from __future__ import annotations

import pytest

from hpc_llm.errors import WorkerError
from hpc_llm.records.rank_variables import WITHOUT_SCRIPT, RankVariables
from hpc_llm.site.launchers import known
from hpc_llm.worker.ranks import Ranks, apply, device_index, find_ranks

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29400",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    "PMIX_RANK": "5",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
BATCH_STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_NNODES": "2",
}
SRUN = {
    **BATCH_STEP,
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
}


def test_torchrun() -> None:
    assert find_ranks(TORCHRUN) == Ranks(3, 4, 1, 2, "n1", 29400, "torchrun")


def test_open_mpi_on_one_node_inside_a_slurm_job() -> None:
    found = find_ranks({**BATCH_STEP, **OPEN_MPI})
    assert found == Ranks(5, 8, 5, 8, "127.0.0.1", 24711, "mpirun")


def test_open_mpi_whose_daemons_srun_started() -> None:
    env = {**SRUN, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "SLURM_STEP_NUM_TASKS": "2", "MASTER_ADDR": "n1"}
    assert find_ranks(env).rank == 5


def test_hydra_needs_to_be_told_where_rank_0_is() -> None:
    with pytest.raises(WorkerError, match="MASTER_ADDR is not set"):
        find_ranks(HYDRA)
    assert find_ranks({**HYDRA, "MASTER_ADDR": "n1"}) == Ranks(2, 4, 0, 2, "n1", 20000, "mpirun")


def test_srun() -> None:
    assert find_ranks(SRUN) == Ranks(3, 4, 1, 2, "10.0.0.1", 24711, "srun")
    assert find_ranks({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4"}).launcher == "srun"


def test_plain_python_in_a_job_of_many_tasks_is_alone() -> None:
    assert find_ranks(BATCH_STEP) == Ranks(0, 1, 0, 1, "127.0.0.1", 0, "python")
    assert find_ranks({}) == find_ranks({"WORLD_SIZE": "8"})  # some sites preset the number of GPUs


def test_the_job_script_overrules_what_is_found() -> None:
    assert find_ranks({**TORCHRUN, "HPC_LLM_LAUNCHER": "python"}).world_size == 1
    assert find_ranks({**SRUN, **OPEN_MPI, "HPC_LLM_LAUNCHER": "srun"}).rank == 3


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"HPC_LLM_LAUNCHER": "slurm"}, "no launcher 'slurm'.*Valid: mpirun, python, srun, torchrun"),
        ({"HPC_LLM_LAUNCHER": "torchrun"}, "none of RANK is set, so this process was not started by torchrun"),
        ({**TORCHRUN, "RANK": "4"}, "rank 4 of 4"),
        ({**TORCHRUN, "RANK": "x"}, "'x', which is not a number"),
    ],
)
def test_what_cannot_be_is_an_error(env: dict[str, str], message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        find_ranks(env)


def test_the_device_is_the_local_rank_where_all_are_visible_and_0_where_only_its_own_is() -> None:
    ranks = find_ranks(OPEN_MPI)
    assert [device_index(ranks, count) for count in (8, 1)] == [5, 0]
    env = dict(OPEN_MPI)
    apply(ranks, env, device_count=1)
    assert env["LOCAL_RANK"] == "0"
    assert "OMPI_COMM_WORLD_LOCAL_RANK" not in env  # DeepSpeed insists that it equals LOCAL_RANK


def test_one_rank_under_torchrun_opens_its_own_meeting_point() -> None:
    # With the agent's store left on, the process would wait for ever at a port that nobody serves.
    env = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    apply(find_ranks(env), env)
    assert "TORCHELASTIC_USE_AGENT_STORE" not in env


def test_several_ranks_under_torchrun_keep_the_agents_store() -> None:
    env = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    apply(find_ranks(env), env)
    assert env["TORCHELASTIC_USE_AGENT_STORE"] == "True"


def test_the_job_script_says_what_any_launcher_calls_a_rank_s_place() -> None:
    said = RankVariables(rank=("MY_RANK", "RANK_2"), world_size=("MY_SIZE",), local_rank=("MY_SLOT",)).text()
    env = {"HPC_LLM_LAUNCHER": "theirs", "HPC_LLM_RANK_VARIABLES": said, "SLURM_NNODES": "2"}
    env |= {"RANK_2": "3", "MY_SIZE": "4", "MY_SLOT": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29400"}
    assert find_ranks({**SRUN, **env}) == Ranks(3, 4, 1, 2, "n1", 29400, "theirs")
    assert find_ranks({**SRUN, **env, "HPC_LLM_RANK_VARIABLES": ""}).world_size == 1
    for wrong in (
        "rank=A",
        "rank",
        "rank= world_size= local_rank= local_world_size=",
        "rank=A world_size=B local_rank=C local_world_size= more=D",
    ):
        with pytest.raises(WorkerError, match="which the job script did not write"):
            find_ranks({**env, "HPC_LLM_RANK_VARIABLES": wrong})


@pytest.mark.parametrize("launcher", sorted(known()))
def test_what_a_launcher_declares_is_what_its_ranks_are_told(launcher: str) -> None:
    variables = known()[launcher].variables
    assert variables == WITHOUT_SCRIPT.get(launcher)
    assert variables is None or RankVariables.of(variables.text()) == variables
