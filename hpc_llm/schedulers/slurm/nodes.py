"""Which nodes a job can start on that names nodes, by what Slurm says of those of its partition."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hpc_llm.errors import counted, notice
from hpc_llm.planning.experiment import Plan
from hpc_llm.schedulers.scheduler import Objection
from hpc_llm.schedulers.slurm.clients import call
from hpc_llm.site.cluster import Cluster

_SHOWN = 12
_FORMAT = "--Format=NodeList: ,StateLong: ,CPUs: ,Gres: "
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)")
_UNTOLD_MB = 1
"""What Slurm says of a node whose memory the site did not tell it."""
_AWAY = re.compile(r"down|drain|fail|maint|reboot|powered_down|unk|future|no_respond")
"""States of nodes that take no job until somebody brings them back."""


@dataclass(frozen=True, kw_only=True)
class LiveNode:
    """What Slurm itself says of a node."""

    state: str
    cpus: int
    gpus: int


def live_nodes(partition: str) -> dict[str, LiveNode]:
    """The nodes of a partition, or of several separated by commas; none where Slurm gives no answer."""
    told, _ = call(["sinfo", "--Node", "--noheader", f"--partition={partition}", _FORMAT])
    lines = [line.split(maxsplit=3) for line in (told or "").splitlines()]
    return {
        words[0]: LiveNode(state=words[1], cpus=int(words[2]), gpus=sum(map(int, _GPUS.findall(words[3]))))
        for words in lines
        if len(words) == 4 and words[2].isdecimal()
    }


def largest_node(partition: str | None) -> int | None:
    """Bytes of memory of the largest node of a partition, or of several, or of all; None where Slurm gives no answer."""
    where = [f"--partition={partition}"] if partition else []
    told, _ = call(["sinfo", "--Node", "--noheader", *where, "--Format=Memory"])
    return _largest(told or "")


def _largest(told: str) -> int | None:
    """Bytes of the largest of these sizes in MB.

    >>> _largest("1\\n257000\\n"), _largest("1\\n1\\n")
    (269484032000, None)
    """
    sizes = [int(size) for size in told.split() if size.isdecimal()]
    return max((size * 2**20 for size in sizes if size > _UNTOLD_MB), default=None)


def objections_to_nodes(plan: Plan, cluster: Cluster) -> Iterator[str]:
    """Why a job never starts on the nodes that its options leave or name; where those that are left are away, that is told.

    What is not known says nothing.
    """
    options = {**cluster.extra_options, **plan.job.sbatch}
    said = [name for name in ("exclude", "nodelist") if name in options]
    there = live_nodes(plan.job.partition) if said and plan.job.partition else {}
    if not there:
        return
    named = {name: _expanded(options[name]) for name in said}
    if len(said) > 1 and (both := sorted(set(named["nodelist"]) & set(named["exclude"]))):
        yield Objection(
            f"--nodelist={options['nodelist']} and --exclude={options['exclude']} both name {', '.join(both[:_SHOWN])}",
            "Take what is to be left out of --nodelist.",
        )
    for name in said:
        judge = _excluded if name == "exclude" else _named
        yield from judge(plan, f"--{name}={options[name]}", named[name], there)


def _named(plan: Plan, said: str, names: Collection[str], there: dict[str, LiveNode]) -> Iterator[str]:
    missing = [one for one in names if one not in there]
    if missing:
        yield Objection(
            f"{said}: partition {plan.job.partition} has no node {', '.join(missing)}, it has {_listed(there)}",
            "Name nodes of it, or another --partition.",
        )


def _excluded(plan: Plan, said: str, names: Collection[str], there: dict[str, LiveNode]) -> Iterator[str]:
    needed, where = plan.parallel.nodes, f"partition {plan.job.partition}"
    fit = [one for one, node in there.items() if _fits(plan, node)]
    left = [one for one in fit if one not in names]
    kind = "" if len(fit) == len(there) else f" with {counted(plan.parallel.gpus_per_node, 'GPU')} or more"
    leaves = f"{said} leaves {len(left)} of the {counted(len(fit), 'node')}{kind} of {where}"
    if len(left) < needed <= len(fit):
        fewer = f", ask for {counted(len(left), 'node')} with --nodes {len(left)}" if left else ""
        yield Objection(
            f"{leaves}, and the job takes {needed}",
            f"Take {' or '.join(sorted(set(fit) - set(left))[:_SHOWN])} out of it{fewer}, or name another --partition.",
        )
        return
    here = [one for one in fit if not _AWAY.search(there[one].state)]
    if len(set(here) & set(left)) < needed <= len(here):
        away = [f"{one} is {there[one].state}" for one in left if one not in here]
        notice(f"{leaves}, of which {', '.join(away[:_SHOWN])}: the job waits until as many as it takes are back")


def _fits(plan: Plan, node: LiveNode) -> bool:
    cpus = plan.parallel.tasks_per_node * (plan.job.cpus_per_task or 0)
    return node.gpus >= plan.parallel.gpus_per_node and node.cpus >= cpus


def _expanded(text: str) -> list[str]:
    """The names that Slurm's short form of them stands for; none of a file, and of what Slurm does not take."""
    if "/" in text or text.startswith("-"):
        return []
    told, _ = call(["scontrol", "show", "hostnames", text])
    return (told or "").split()


def _listed(there: dict[str, LiveNode]) -> str:
    names = sorted(there)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
