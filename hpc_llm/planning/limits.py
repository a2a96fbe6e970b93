"""Holding a job to the limits of its partition and of its QOS, as Slurm does.

Slurm bounds wall time and nodes by the partition even where the QOS allows more, unless a flag of the QOS lifts that. Which
QOS has which flag only the site knows: where a job names a QOS and the profile does not say it, nothing is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hpc_llm.errors import PlanError, counted, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning.draft import Draft
from hpc_llm.site.cluster import Cluster, Node, Partition, Qos
from hpc_llm.site.partitions import Lifted
from hpc_llm.site.profiles import where_to_change
from hpc_llm.site.slurm_time import format_time


@dataclass(frozen=True, kw_only=True)
class JobQos:
    """The QOS of a job; `facts` are None where the profile says nothing of it."""

    name: str | None = None
    facts: Qos | None = None
    is_default: bool = False
    """Whether the job names none, so that Slurm gives it this one."""
    origin: str = ""
    """Who names it where the request does not, in brackets behind a space."""

    def said(self, cluster: Cluster) -> str:
        given = ", which Slurm gives a job that names none," if self.is_default else ""
        return f"qos {self.name} of cluster {cluster.name}{self.origin}{given}"

    def lifts(self, what: Lifted) -> bool | None:
        """Whether the partition's limit does not hold under it, None where nobody knows."""
        if self.facts is not None and self.facts.lifts is not None:
            return what in self.facts.lifts
        return False if self.name is None or self.is_default else None


def job_qos(options: Mapping[str, str], cluster: Cluster, partition: Partition | None, draft: Draft) -> JobQos:
    """The QOS that the job will have: what the `options` of --sbatch name, or the profile for every job, or the site's default.

    Raises PlanError for a name that the site does not have, or not on that partition.
    """
    asked = options.get("qos")
    name = asked or cluster.extra_options.get("qos")
    if not name:
        default = cluster.default_qos(partition)
        return JobQos(name=default.name, facts=default, is_default=True) if default else JobQos()
    # Of several, separated by commas, the job gets one, and which one only Slurm will know.
    origin = "" if asked else " (request.extra of the profile)"
    facts = [_known(one, origin, draft, cluster, partition) for one in name.split(",")]
    return JobQos(name=name, facts=facts[0] if len(facts) == 1 else None, origin=origin)


def _known(name: str, origin: str, draft: Draft, cluster: Cluster, partition: Partition | None) -> Qos | None:
    """What the profile says of it; `origin` is told where no request named it."""
    found = cluster.qos_named(name)
    names = [q.name for q in cluster.qos if q.is_for(partition)]
    if found is None and cluster.qos_complete:
        raise PlanError(unknown_name("qos", name, names, where=place_of(cluster, partition)))
    if found is None and cluster.qos:
        draft.notices.append(
            f"qos {name}{origin} is none that the profile knows ({', '.join(names)}): its limits are not checked"
        )
    if found is not None and partition is not None and not found.is_for(partition):
        other = f", or --partition {' or '.join(found.partitions)}"
        another = (
            ""
            if cluster.qos_complete
            else ", or --sbatch qos=NAME with one that is for it, which the profile does not know"
        )
        valid = (
            f"Take --sbatch qos={' or '.join(names)}{other}"
            if names
            else f"Take {other.removeprefix(', or ')}{another}"
        )
        change = f" What every job takes is changed in {where_to_change('clusters', cluster.name)}." if origin else ""
        raise PlanError(f"qos {found.name}{origin} is not for {place_of(cluster, partition)}. {valid}.{change}")
    return found


def place_of(cluster: Cluster, partition: Partition | None) -> str:
    return f"partition {partition.name} of cluster {cluster.name}" if partition else f"cluster {cluster.name}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An amount that a job asks for, and the words to refuse it with."""

    what: Lifted
    amount: int
    said: str
    """As in `3 nodes`."""
    per_partition: str = ""
    """What a partition's limit counts, as in ` per user`."""
    per_qos: str = ""
    less: str
    """How to ask for less."""
    shown: Callable[[int], str] = str

    def of_partition(self, partition: Partition) -> int | None:
        limits = {"time": partition.max_time_s, "nodes": partition.max_nodes, "gpus": partition.max_gpus}
        return limits[self.what]

    def of_qos(self, qos: Qos) -> int | None:
        return {"time": qos.max_time_s, "nodes": qos.max_nodes, "gpus": qos.max_gpus_per_job}[self.what]


def asked_time(seconds: int) -> Asked:
    """So long a job."""
    return Asked(
        what="time",
        amount=seconds,
        said=f"time {format_time(seconds)}",
        less="Ask for less with --time",
        shown=format_time,
    )


def sizes(nodes: int, gpus: int) -> list[Asked]:
    """The nodes of a job and all of its GPUs, of which each node has `gpus`."""
    return [
        Asked(
            what="nodes",
            amount=nodes,
            said=f"{nodes} nodes",
            per_partition=" per job",
            per_qos=" per job",
            less="Ask for fewer with --nodes",
        ),
        Asked(
            what="gpus",
            amount=nodes * gpus,
            said=f"{nodes} x {gpus} = {nodes * gpus} GPUs",
            per_partition=" per user",
            per_qos=" per job",
            less="Ask for fewer nodes" if nodes > 1 else "Ask for fewer with --gpus-per-node",
        ),
    ]


def widest(asked: Asked, cluster: Cluster, partition: Partition | None) -> int | None:
    """The limit of the partition, or where Slurm chooses it, the widest of all; None where one has none."""
    limits = [asked.of_partition(one) for one in ([partition] if partition else cluster.partitions)]
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None


def most_allowed(asked: Asked, cluster: Cluster, partition: Partition | None, qos: JobQos) -> tuple[int, str] | None:
    """The narrower of the limits of partition and QOS, and which of them it is; None where there is none."""
    of_partition = None if qos.lifts(asked.what) else widest(asked, cluster, partition)
    own = asked.of_qos(qos.facts) if qos.facts else None
    limits = [(limit, name) for limit, name in ((of_partition, "partition"), (own, "qos")) if limit is not None]
    return min(limits, default=None)


def hold(
    asked: Asked, size: Sequence[Asked], cluster: Cluster, partition: Partition | None, qos: JobQos, draft: Draft
) -> None:
    """Raise a PlanError that names the limit and the way out where the job asks for more than it may.

    `size` is what it asks for besides, which the way out must allow too.
    """
    limit = widest(asked, cluster, partition)
    own = asked.of_qos(qos.facts) if qos.facts else None
    if own is not None and asked.amount > own:
        allows = f"{qos.said(cluster)} allows {asked.shown(own)}{asked.per_qos}"
        raise PlanError(f"{asked.said}: {allows}. {asked.less}{_ways([asked, *size], cluster, partition, qos)}.")
    if limit is None or asked.amount <= limit or qos.lifts(asked.what):
        return
    allows = f"{asked.said}: {place_of(cluster, partition)} allows {asked.shown(limit)}{asked.per_partition}"
    if qos.lifts(asked.what) is None:
        draft.notices.append(f"{allows}, and whether qos {qos.name} lifts that is not known here")
        return
    ways = _ways([asked, *size], cluster, partition, qos) or (
        _elsewhere(asked, size, cluster, qos) if asked.what == "time" else ""
    )
    raise PlanError(f"{allows}. {asked.less}{ways}.")


def _elsewhere(asked: Asked, size: Sequence[Asked], cluster: Cluster, qos: JobQos) -> str:
    """Which partitions would allow it to another job, as the end of a sentence, where none allows it to this one."""

    def allowing(amounts: Sequence[Asked]) -> list[str]:
        return [p.name for p in cluster.partitions if _allow(amounts, cluster, p, _qos_on(p, cluster, qos))]

    if others := allowing([asked, *size]):
        return f", or take a partition with other GPUs that allows it: {', '.join(others)}"
    if others := allowing([asked]):
        return f", or for fewer nodes or GPUs on a partition that allows it: {', '.join(others)}"
    return ", since no partition here allows it"


def _qos_on(partition: Partition, cluster: Cluster, qos: JobQos) -> Qos | None:
    return cluster.default_qos(partition) if qos.name is None or qos.is_default else qos.facts


def _ways(asked: Sequence[Asked], cluster: Cluster, partition: Partition | None, qos: JobQos) -> str:
    """Where all that is asked for would be allowed, as the end of a sentence."""
    others = [q.name for q in cluster.qos if q is not qos.facts and _allow(asked, cluster, partition, q)]
    by_qos = (
        f", or take a qos that allows it: {' or '.join(f'--sbatch qos={name}' for name in others)}" if others else ""
    )
    names = _partitions_for(asked, cluster, partition, qos)
    ways = (f", or take a partition that allows it: {', '.join(names)}" if names else "") + by_qos
    return ways or _both(asked, cluster, partition)


def _both(asked: Sequence[Asked], cluster: Cluster, now: Partition | None) -> str:
    """Another partition together with another QOS, where only both allow it."""
    for partition in cluster.partitions:
        for qos in cluster.qos:
            if cluster.gpu_of(partition) == cluster.gpu_of(now) and _allow(asked, cluster, partition, qos):
                return f", or take both --partition {partition.name} and --sbatch qos={qos.name}"
    return ""


def qos_for_longer(seconds: int, size: Sequence[Asked], cluster: Cluster, partition: Partition | None) -> list[str]:
    """Names of the QOS under which a job of that size may certainly last longer there."""
    asked = [asked_time(seconds + 1), *size]
    return [one.name for one in cluster.qos if _allow(asked, cluster, partition, one)]


def _partitions_for(asked: Sequence[Asked], cluster: Cluster, now: Partition | None, qos: JobQos) -> list[str]:
    found = []
    for partition in cluster.partitions:
        # With other GPUs it would be another plan, which may not fit there.
        has_same = cluster.gpu_of(partition) == cluster.gpu_of(now)
        if has_same and _allow(asked, cluster, partition, _qos_on(partition, cluster, qos)):
            found.append(partition.name)
    return found


def _allow(asked: Iterable[Asked], cluster: Cluster, partition: Partition | None, qos: Qos | None) -> bool:
    """Whether it is certain that a job on that partition gets as much under that QOS."""
    if qos is None:
        return all(_is_within(one.amount, widest(one, cluster, partition)) for one in asked)
    return qos.is_for(partition) and all(
        _is_within(one.amount, one.of_qos(qos))
        and (one.what in (qos.lifts or ()) or _is_within(one.amount, widest(one, cluster, partition)))
        for one in asked
    )


def _is_within(amount: int, limit: int | None) -> bool:
    return limit is None or amount <= limit


def memory_share(style: str, node: Node, gpus: int) -> float | None:
    """Decimal GB for the memory flag of that style; None where none is given."""
    if style == "omit" or node.mem_gb_per_gpu is None or not gpus:
        return None
    if style == "mem-per-cpu":
        return node.mem_gb_per_gpu / node.cpus_per_gpu if node.cpus_per_gpu else None
    return node.mem_gb_per_gpu * (gpus if style == "mem" else 1)


def memory_flag(size_gb: float) -> str:
    """Decimal GB as Slurm takes them, whose M is 2^20: rounded down, for a GiB too much is charged as another GPU."""
    return f"{int(size_gb * 1e9 / 2**20)}M"


def check_share(field: str, asked: float | None, there: float | None, gpus: int, cluster: str) -> None:
    """Raise PlanError where the profile itself would ask for more than a node has: `asked` for its GPUs, of what is `there`."""
    if asked and there and asked > there:
        raise PlanError(
            f"cluster {cluster}: node.{field} for {counted(gpus, 'GPU')} is {asked:g}, and node.{field.partition('_per_')[0]} says "
            f"that a node has {there:g}. Correct the profile: `hpc-llm clusters {cluster}` shows it."
        )
