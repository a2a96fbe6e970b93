"""mpirun: ranks by Open MPI or another MPI, with the arguments of `launch.mpirun_args`."""

from __future__ import annotations

from hpc_llm.records.rank_variables import MPI
from hpc_llm.site.launchers import Launcher, Start
from hpc_llm.text.shell import shell_word


def command(start: Start) -> str:
    words = ["mpirun", "-np", start.ranks, *start.launch.mpirun_args]
    return " ".join([*map(shell_word, words), '"${rank[@]}"'])


LAUNCHER = Launcher(name="mpirun", command=command, variables=MPI)
