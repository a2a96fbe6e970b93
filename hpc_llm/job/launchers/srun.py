"""srun: each rank is a task of Slurm's, with the arguments of `launch.srun_args`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpc_llm.records.rank_variables import SLURM
from hpc_llm.site.launchers import Launcher, Start
from hpc_llm.text.shell import shell_word

_OF_A_RANK = frozenset(
    """--cpu-bind --cpus-per-task -c --gpu-bind --gpus-per-task --tres-bind --tres-per-task --accel-bind --mem-bind --distribution -m
    --hint --threads-per-core --cores-per-socket --extra-node-info -B""".split()
)
"""Options that give each task its own part of a node. To one agent that starts all ranks of the node they would give the part
of the first rank, in which all others would run."""
_WHOLE_NODE = frozenset(("none", "no", "n"))
"""Values by which nothing is bound, which is as true for an agent."""


def srun(start: Start, tasks_per_node: int) -> str:
    """srun and its options; it passes on the job's environment, and one failed task ends all."""
    size = [f"--nodes={start.nodes}", f"--ntasks={start.nodes * tasks_per_node}", f"--ntasks-per-node={tasks_per_node}"]
    own = [
        word for option in _options(start.launch.srun_args) for word in option if _is_for(start, tasks_per_node, option)
    ]
    words = ["srun", *size, "--kill-on-bad-exit=1", "--export=ALL", *own]
    return " ".join(map(shell_word, words))


def left_out(start: Start, tasks_per_node: int) -> tuple[str, ...]:
    """The names of those options of `launch.srun_args` that are not given to so many tasks a node."""
    options = _options(start.launch.srun_args)
    return tuple(_name(option) for option in options if not _is_for(start, tasks_per_node, option))


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    """Each option with its value, which may be a word of its own."""
    option: list[str] = []
    for word in words:
        if word.startswith("-") and option:
            yield option
            option = []
        option.append(word)
    if option:
        yield option


def _is_for(start: Start, tasks_per_node: int, option: Sequence[str]) -> bool:
    if tasks_per_node == start.ranks_per_node or _name(option) not in _OF_A_RANK:
        return True
    return option[-1].rpartition("=")[2].lower() in _WHOLE_NODE


def _name(option: Sequence[str]) -> str:
    """`--cpu-bind` of `--cpu-bind=none`, `-c` of `-c4`."""
    return option[0].partition("=")[0] if option[0].startswith("--") else option[0][:2]


LAUNCHER = Launcher(
    name="srun",
    command=lambda start: f'{srun(start, start.ranks_per_node)} "${{task[@]}}"',
    variables=SLURM,
    needs_slurm=True,
)
