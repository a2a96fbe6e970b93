"""Which process this is: rank and world size, whatever started it. Standard library only.

The job script says in HPC_LLM_LAUNCHER what started the ranks, and in HPC_LLM_RANK_VARIABLES how that calls their places,
whatever launcher it is. Without the script the variables themselves tell; a plain `python` inside a job of many tasks is
one process, not a rank of them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from hpc_llm.errors import WorkerError, unknown_name
from hpc_llm.records.rank_variables import MPI, TORCHRUN, VARIABLE, WITHOUT_SCRIPT, Names, RankVariables

ALONE = "python"
LAUNCHERS = (*WITHOUT_SCRIPT, ALONE)


@dataclass(frozen=True)
class Ranks:
    """This process among all. Ranks count from 0; `local_` means on this node."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    """Host of rank 0."""
    master_port: int
    """0 lets a process that runs alone take any free port."""
    launcher: str

    def environment(self) -> dict[str, str]:
        """The variables that torch.distributed and DeepSpeed read."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }


def find_ranks(env: Mapping[str, str]) -> Ranks:
    """Read this process's place from the environment of its launcher. Raises WorkerError where it is incomplete."""
    launcher = env.get("HPC_LLM_LAUNCHER") or _detect(env)
    variables = _variables(env, launcher)
    if variables is None:
        return Ranks(0, 1, 0, 1, "127.0.0.1", 0, launcher)
    rank = _number(env, launcher, variables.rank)
    world_size = _number(env, launcher, variables.world_size)
    if not 0 <= rank < world_size:
        raise WorkerError(f"the variables of {launcher} say rank {rank} of {world_size}, which cannot be.")
    if world_size == 1:
        return Ranks(0, 1, 0, 1, "127.0.0.1", 0, launcher)
    local_rank = _number(env, launcher, variables.local_rank)
    local_world_size = _local_world_size(env, variables, world_size)
    address, port = _meeting_point(env, local_world_size == world_size)
    return Ranks(rank, world_size, local_rank, local_world_size, address, port, launcher)


def _variables(env: Mapping[str, str], launcher: str) -> RankVariables | None:
    """What the launcher calls a rank's place; None for a process alone."""
    said = env.get(VARIABLE) if "HPC_LLM_LAUNCHER" in env else None
    if said is not None:
        try:
            return RankVariables.of(said) if said else None
        except ValueError:
            raise WorkerError(f"{VARIABLE} is {said!r}, which the job script did not write. Leave it out.") from None
    if launcher not in LAUNCHERS:
        raise WorkerError(unknown_name("launcher", launcher, LAUNCHERS, where="HPC_LLM_LAUNCHER"))
    return WITHOUT_SCRIPT.get(launcher)


def apply(ranks: Ranks, env: MutableMapping[str, str], device_count: int = 0) -> None:
    """Write `ranks` into the environment, LOCAL_RANK as the index of the device where fewer are visible than ranks."""
    env.update(ranks.environment())
    if device_count:
        env["LOCAL_RANK"] = str(device_index(ranks, device_count))
    if ranks.world_size == 1:
        # torchrun keeps the meeting point itself and says so; a process alone that opens its own would wait for ever.
        env.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    # DeepSpeed insists that Open MPI's variable equals LOCAL_RANK and asks MPI for ranks where it is set.
    for name in [n for n in env if n.startswith("OMPI_COMM_WORLD_")]:
        del env[name]


def device_index(ranks: Ranks, device_count: int) -> int:
    """The device of this rank: some launchers show each rank all devices of the node, others only its own."""
    return ranks.local_rank % device_count


def _detect(env: Mapping[str, str]) -> str:
    """The launcher whose variables are there.

    Slurm's are also set around mpirun's processes, and srun itself may set PMI_RANK: the sizes tell them apart.
    """
    if all(name in env for names in (TORCHRUN.rank, TORCHRUN.world_size, TORCHRUN.local_rank) for name in names):
        return "torchrun"
    size = _find(env, MPI.world_size)
    tasks = env.get("SLURM_STEP_NUM_TASKS", "1")
    by_mpirun = "OMPI_COMM_WORLD_SIZE" in env or size != tasks
    if size is not None and by_mpirun and _find(env, MPI.rank) is not None:
        return "mpirun"
    return "srun" if tasks != "1" and "SLURM_PROCID" in env else ALONE


def _find(env: Mapping[str, str], names: Names) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


def _number(env: Mapping[str, str], launcher: str, names: Names) -> int:
    value = _find(env, names)
    if value is None:
        raise WorkerError(
            f"none of {', '.join(names)} is set, so this process was not started by {launcher}: start it with "
            f"{launcher}, or set HPC_LLM_LAUNCHER to one of {', '.join(LAUNCHERS)}."
        )
    try:
        return int(value)
    except ValueError:
        raise WorkerError(f"one of {', '.join(names)} holds {value!r}, which is not a number.") from None


def _local_world_size(env: Mapping[str, str], variables: RankVariables, world_size: int) -> int:
    value = _find(env, variables.local_world_size)
    if value is not None:
        return int(value)
    nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or 1)
    return -(-world_size // nodes)


def _meeting_point(env: Mapping[str, str], one_node: bool) -> tuple[str, int]:
    """Host and port where the ranks meet: as the job script says, else worked out of the job id."""
    address = env.get("MASTER_ADDR") or ("127.0.0.1" if one_node else env.get("SLURM_LAUNCH_NODE_IPADDR"))
    if not address:
        raise WorkerError("MASTER_ADDR is not set and the ranks are on several nodes: set it to the host of rank 0.")
    port = env.get("MASTER_PORT")
    if port:
        return address, int(port)
    job_id = env.get("SLURM_JOB_ID", "0")
    return address, 20000 + (int(job_id) if job_id.isascii() and job_id.isdecimal() else 0) % 20000
