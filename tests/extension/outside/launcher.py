"""A launcher of another package: bash, with variables of its own."""

from __future__ import annotations

from hpc_llm.records.rank_variables import RankVariables
from hpc_llm.site.launchers import Launcher, Start


def command(start: Start) -> str:
    return f'env MY_PLACE=0 MY_ALL={start.ranks} MY_SLOT=0 "${{rank[@]}}"'


LAUNCHER = Launcher(
    name="envrun",
    command=command,
    variables=RankVariables(rank=("MY_PLACE",), world_size=("MY_ALL",), local_rank=("MY_SLOT",)),
)
