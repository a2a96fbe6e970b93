"""srun: each rank is a task of Slurm's, with the arguments of `launch.srun_args`."""

from __future__ import annotations

from hpc_llm.records.rank_variables import SLURM
from hpc_llm.site.launchers import Launcher, Start
from hpc_llm.text.shell import shell_word


def srun(start: Start, tasks_per_node: int) -> str:
    """srun and its options; it passes on the job's environment, and one failed task ends all."""
    size = [f"--nodes={start.nodes}", f"--ntasks={start.nodes * tasks_per_node}", f"--ntasks-per-node={tasks_per_node}"]
    words = ["srun", *size, "--kill-on-bad-exit=1", "--export=ALL", *start.launch.srun_args]
    return " ".join(map(shell_word, words))


LAUNCHER = Launcher(
    name="srun",
    command=lambda start: f'{srun(start, start.ranks_per_node)} "${{task[@]}}"',
    variables=SLURM,
    needs_slurm=True,
)
