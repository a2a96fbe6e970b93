"""torchrun: an agent a node, started by srun where there are several, which starts the ranks of its node."""

from __future__ import annotations

from hpc_llm.job.launchers.srun import left_out, srun
from hpc_llm.records.rank_variables import TORCHRUN
from hpc_llm.site.launchers import Launcher, Start


def command(start: Start) -> str:
    ranks = f"--nproc-per-node={start.ranks_per_node}"
    if start.nodes == 1:
        return f'"${{agent[@]}}" --standalone {ranks} --no-python "${{program[@]}}"'
    meeting = '--master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT"'
    return (
        f'{srun(start, 1)} \\\n  "${{agent_of_node[@]}}" --nnodes={start.nodes} {ranks} {meeting} \\\n'
        '  --no-python "${program[@]}"'
    )


LAUNCHER = Launcher(
    name="torchrun",
    command=command,
    variables=TORCHRUN,
    meets=lambda start: start.nodes > 1,  # on one node the agent finds a port itself
    is_one_task=True,
    leaves_out=lambda start: left_out(start, 1) if start.nodes > 1 else (),
)
