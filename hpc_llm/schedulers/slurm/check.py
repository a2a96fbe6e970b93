"""Whether the Slurm that commands here talk to is the cluster of the profile, and could ever start the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from hpc_llm.errors import RequestError, did_you_mean
from hpc_llm.planning.experiment import Plan
from hpc_llm.schedulers.scheduler import Objection
from hpc_llm.schedulers.slurm.clients import call, is_answering
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.profiles import where_to_add_partitions
from hpc_llm.site.sbatch_times import deadline_missed
from hpc_llm.site.slurm_time import format_time, parse_limit
from hpc_llm.text.numbers import whole_number

_SHOWN = 12
"""Names that are listed whole."""


@dataclass(frozen=True, kw_only=True)
class LivePartition:
    """What Slurm itself says of a partition; None is no limit, or none that is understood."""

    total_nodes: int | None
    max_nodes: int | None
    max_time_s: int | None
    default_time_s: int | None
    """Of a job that says none."""


def live_partitions() -> dict[str, LivePartition] | None:
    """The partitions of this Slurm by name, the hidden ones too; None where it gives no answer."""
    if not is_answering():
        return None
    told, _ = call(["scontrol", "--all", "--oneliner", "show", "partitions"])
    if told is None:
        return None
    found = {}
    for line in told.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in fields:
            found[fields["PartitionName"]] = _partition(fields)
    return found


def _partition(fields: Mapping[str, str]) -> LivePartition:
    return LivePartition(
        total_nodes=_count(fields.get("TotalNodes")),
        max_nodes=_count(fields.get("MaxNodes")),
        max_time_s=_limit(fields.get("MaxTime", "")),
        default_time_s=_limit(fields.get("DefaultTime", "")),
    )


def _limit(text: str) -> int | None:
    try:
        return parse_limit(text)
    except RequestError:
        return None


def _count(text: str | None) -> int | None:
    return None if text is None else whole_number(text)


def objections(
    plan: Plan, cluster: Cluster, name: str | None, partitions: Mapping[str, LivePartition] | None
) -> Iterator[str]:
    """Why the job does not belong to the Slurm of that name, or would never start there; one sentence each.

    What is not known says nothing.
    """
    here = f"this Slurm is {name}" if name else "this Slurm"
    if name is not None and cluster.slurm_clusters and name not in cluster.slurm_clusters:
        yield f"{here}, cluster {cluster.name} is {' or '.join(cluster.slurm_clusters)}"
        return
    if not partitions:
        return
    own = [partition.name for partition in cluster.partitions]
    if own and not set(own) & set(partitions):
        yield f"{here} and has none of the partitions of cluster {cluster.name} ({_listed(own)}), it has {_listed(partitions)}"
        return
    if plan.job.partition is None:
        return
    # sbatch takes a list of partitions, of which the job starts on one.
    wanted = plan.job.partition.split(",")
    missing = [one for one in wanted if one not in partitions]
    where = "" if name is not None and name in (cluster.name, *cluster.slurm_clusters) else _or_elsewhere(cluster)
    if missing:
        near, add = did_you_mean(missing[0], partitions), ""
        if own:
            both = sorted(set(own) & set(partitions))
            remedy = f"Name one with --partition that cluster {cluster.name} has too: {_listed(both)}"
            add = f". Others are added first under {where_to_add_partitions(cluster.name)}"
        elif near:
            remedy = f"{near[2:3].upper()}{near[3:]} Name it, or another, with --partition"
        else:
            remedy = "Name one of these with --partition"
        yield Objection(
            f"{here} and has no partition {missing[0]}, it has {_listed(partitions)}", f"{remedy}{where}{add}."
        )
        return
    asked = {**cluster.extra_options, **plan.job.sbatch}
    if plan.job.time_s is None:
        yield from _too_late(asked, {one: partitions[one].default_time_s for one in wanted})
    has_qos = "qos" in asked
    for sentence, less in _too_large(plan, [(one, partitions[one]) for one in wanted], has_qos):
        yield Objection(sentence, f"Ask for {less}, or name another --partition{where}.")


def _or_elsewhere(cluster: Cluster) -> str:
    """What else may be wrong, where it is not known whether this Slurm is that of the profile."""
    return f"; or submit from a login node of {cluster.name}, if this is none. --force submits all the same"


def _too_late(asked: Mapping[str, str], defaults: Mapping[str, int | None]) -> Iterator[Objection]:
    """Where the shortest time that one of the partitions gives is too long for the deadline; without any Slurm shortens the job."""
    times = [time for time in defaults.values() if time is not None]
    missed = deadline_missed(asked, min(times), datetime.now()) if len(times) == len(defaults) else None
    if missed:
        yield Objection(f"{missed[0]}, as partition {' and '.join(defaults)} gives a job that says none", missed[1])


def _too_large(plan: Plan, wanted: list[tuple[str, LivePartition]], has_qos: bool) -> Iterator[tuple[str, str]]:
    """What is asked for and allowed on none of the partitions, and what to ask for instead."""
    names = " and ".join(name for name, _ in wanted)
    totals = [one.total_nodes for _, one in wanted]
    most = max((total for total in totals if total is not None), default=None)
    if most is not None and None not in totals and plan.parallel.nodes > most:
        yield f"{plan.parallel.nodes} nodes are asked for, partition {names} has {most}", "fewer with --nodes"
    if has_qos:  # which may lift the limits of a partition
        return
    limits = [one.max_nodes for _, one in wanted]
    if all(limit is not None and plan.parallel.nodes > limit for limit in limits):
        allowed = max(n for n in limits if n is not None)
        yield f"{plan.parallel.nodes} nodes are asked for, partition {names} allows {allowed}", "fewer with --nodes"
    times = [one.max_time_s for _, one in wanted]
    if plan.job.time_s is not None and all(time is not None and plan.job.time_s > time for time in times):
        longest = format_time(max(time for time in times if time is not None))
        asked = format_time(plan.job.time_s)
        yield f"{asked} is asked for, partition {names} allows {longest}", "less with --time"


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more (`sinfo -a`)" if len(found) > _SHOWN else "")
