"""By which variables a rank knows its place: declared by each launcher, said by the job script. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields

from hpc_llm.immutable import dataclass

VARIABLE = "HPC_LLM_RANK_VARIABLES"
"""In which the job script tells its ranks what their launcher's variables are called; empty: a process alone."""
Names = tuple[str, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class RankVariables:
    """What a launcher calls a rank's place; of several names the first that is set counts."""

    rank: Names
    world_size: Names
    local_rank: Names
    """Counted from 0 on each node."""
    local_world_size: Names = ()
    """Ranks of this node; where no name is set it is worked out of the number of nodes."""

    def __post_init__(self) -> None:
        """Raises ValueError where nothing could be read by it."""
        if not (self.rank and self.world_size and self.local_rank):
            raise ValueError("rank, world_size and local_rank need a variable each")
        for name in (*self.rank, *self.world_size, *self.local_rank, *self.local_world_size):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of an environment variable")

    def text(self) -> str:
        """As the job script says it.

        >>> RankVariables(rank=("R", "S"), world_size=("N",), local_rank=("L",)).text()
        'rank=R,S world_size=N local_rank=L local_world_size='
        """
        return " ".join(f"{key}={','.join(names)}" for key, names in asdict(self).items())

    @classmethod
    def of(cls, text: str) -> RankVariables:
        """What `text` says. Raises ValueError."""
        said = dict(word.split("=", 1) for word in text.split())
        if set(said) != {field.name for field in fields(cls)}:
            raise ValueError(text)
        return cls(**{key: tuple(filter(None, names.split(","))) for key, names in said.items()})


TORCHRUN = RankVariables(
    rank=("RANK",), world_size=("WORLD_SIZE",), local_rank=("LOCAL_RANK",), local_world_size=("LOCAL_WORLD_SIZE",)
)
MPI = RankVariables(
    rank=("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", "MV2_COMM_WORLD_RANK"),
    world_size=("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"),
    local_rank=(
        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "MV2_COMM_WORLD_LOCAL_RANK",
    ),
    local_world_size=("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
)  # fmt: skip
SLURM = RankVariables(
    rank=("SLURM_PROCID",), world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), local_rank=("SLURM_LOCALID",)
)
WITHOUT_SCRIPT: Mapping[str, RankVariables] = {"srun": SLURM, "torchrun": TORCHRUN, "mpirun": MPI}
"""By which a program that no job script of ours started finds out what did."""
