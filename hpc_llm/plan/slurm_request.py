"""What a job asks Slurm for, held to the limits of the site: partition, nodes and GPUs, account, time, cores, memory."""

from __future__ import annotations

import re
from typing import Any

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.plan.draft import FALLBACKS, Draft, Said, Site, one_line, positive
from hpc_llm.site.account_pattern import fits
from hpc_llm.site.cluster import Cluster, Gpu, Node, Partition
from hpc_llm.site.launchers import find_launcher
from hpc_llm.site.sbatch_options import Source, memory_bytes, read_options, rivals
from hpc_llm.site.slurm_time import LONGEST_S, format_time, parse_time

MOST_NODES = 20_000
"""No cluster under Slurm has had more; who asks for more has mistyped it."""


def ask_partition(said: Said, cluster: Cluster, site: Site, draft: Draft) -> Partition | None:
    name, origin = said("partition")
    if name is not None:
        one_line("partition", name)
    partition = cluster.partition(name)
    if site.scheduler == "local":
        _without_scheduler("partition", name, draft)
        draft.put("partition", None, "no scheduler")
        return partition
    if partition is None and cluster.partitions and name is not None:
        raise PlanError(
            unknown_name("partition", name, [p.name for p in cluster.partitions], where=f"cluster {cluster.name}")
        )
    draft.first(
        "partition", (name, origin), (partition and partition.name, f"cluster {cluster.name}: default partition")
    )
    return partition


def _without_scheduler(what: str, value: Any, draft: Draft) -> None:
    if value:
        draft.notices.append(f"{what} {value} has no meaning without a scheduler and is left out")


def ask_resources(
    said: Said, cluster: Cluster, partition: Partition | None, gpu: Gpu, site: Site, draft: Draft
) -> None:
    draft.put("scheduler", site.scheduler, f"cluster {cluster.name}: scheduler")
    nodes = draft.first("nodes", said("nodes"), (FALLBACKS["nodes"], "default"))
    positive("nodes", nodes)
    per_node = gpu.per_node if gpu.vendor != "none" else 0
    suggested = cluster.defaults.gpus_per_node
    gpus = draft.first(
        "gpus_per_node",
        said("gpus_per_node"),
        (min(suggested, per_node) if suggested is not None else None, f"cluster {cluster.name}: defaults"),
        (per_node, f"cluster {cluster.name}: gpu.per_node"),
    )
    _check_gpus(gpus, per_node, gpu, cluster, _place(cluster, partition))
    _check_size(nodes, gpus, cluster, partition)
    if site.scheduler == "local" and nodes > 1:
        raise PlanError(
            f"{nodes} nodes: cluster {cluster.name} runs on this machine, without a scheduler. Use --nodes 1."
        )
    draft.put("tasks_per_node", max(gpus, 1), "computed: one rank per GPU")
    launch = cluster.launch
    name = launch.single_node if nodes == 1 else launch.multi_node
    draft.put("launcher", name, f"cluster {cluster.name}: launch.{'single' if nodes == 1 else 'multi'}_node")


def _place(cluster: Cluster, partition: Partition | None) -> str:
    return f"partition {partition.name} of cluster {cluster.name}" if partition else f"cluster {cluster.name}"


def _check_gpus(gpus: int, per_node: int, gpu: Gpu, cluster: Cluster, where: str) -> None:
    if gpus < 0 or gpus > per_node:
        has = f"{per_node} x {gpu.model}" if per_node else "no GPU"
        fewest = 0 if cluster.request.gpu_style == "none" else min(1, per_node)
        raise PlanError(
            f"{gpus} GPUs per node: {where} has {has} per node. Choose --gpus-per-node {fewest}..{per_node}."
        )
    if gpus == 0 and per_node and cluster.request.gpu_style != "none":
        raise PlanError(f"0 GPUs per node: every job on {where} asks for a GPU. Choose --gpus-per-node 1..{per_node}.")


def _check_size(nodes: int, gpus: int, cluster: Cluster, partition: Partition | None) -> None:
    """Hold nodes and GPUs to the partition's limits, or where Slurm chooses it, to the widest of all."""
    where, choices = _place(cluster, partition), [partition] if partition else cluster.partitions
    most = max((p.max_nodes or MOST_NODES for p in choices), default=MOST_NODES)
    if nodes > most:
        known = most < MOST_NODES
        says = f"{where} allows {most} per job" if known else f"no cluster has so many, though {where} states no limit"
        raise PlanError(f"{nodes} nodes: {says}. Ask for fewer with --nodes.")
    limits = [p.max_gpus for p in choices]
    widest = max((limit for limit in limits if limit), default=0)
    if limits and all(limits) and nodes * gpus > widest:
        raise PlanError(
            f"{nodes} x {gpus} = {nodes * gpus} GPUs: {where} allows {widest} per user. Ask for fewer nodes."
        )


def ask_options(said: Said, cluster: Cluster, site: Site, draft: Draft) -> None:
    source = Source(
        place="--sbatch",
        forbidden=cluster.request.forbid,
        refuser=f"cluster {cluster.name}",
        counts_gpus=cluster.counts_gpus,
    )
    options = read_options(said.experiment.sbatch, source)
    if site.scheduler == "local":
        _without_scheduler("--sbatch", ", ".join(options), draft)
        options = {}
    draft.put("sbatch", options, said("sbatch")[1] if options else "not set")
    own = dict(cluster.extra_options)
    if cluster.request.constraint:
        own["constraint"] = cluster.request.constraint
    for name in options:
        for other in (name, *rivals(name)):
            if other in own and (other, own[other]) != (name, options[name]):
                was = f"{other}={own[other]}" if own[other] else other
                draft.notices.append(f"--sbatch {name} takes the place of {was}, which every job has here")


def ask_account(said: Said, cluster: Cluster, site: Site, draft: Draft) -> None:
    rule = cluster.account
    if site.scheduler == "local":
        _without_scheduler("account", said("account")[0], draft)
        draft.put("account", None, "no scheduler")
        return
    account = draft.first(
        "account",
        said("account"),
        (site.account, "environment: SBATCH_ACCOUNT"),
        (rule.default, f"cluster {cluster.name}: account.default"),
    )
    listing = f" `{rule.list_command}` lists yours." if rule.list_command else ""
    if account is None:
        if rule.required:
            raise PlanError(
                f"cluster {cluster.name} needs an account. Give --account NAME or set SBATCH_ACCOUNT.{listing}"
            )
        return
    one_line("account", account)
    if rule.pattern and not fits(rule.pattern, account):
        raise PlanError(
            f"account '{account}' does not fit cluster {cluster.name}, whose accounts match {rule.pattern}.{listing}"
        )


def ask_time(said: Said, cluster: Cluster, partition: Partition | None, draft: Draft) -> None:
    choices = [partition] if partition else cluster.partitions
    longest = max((p.max_time_s for p in choices), default=LONGEST_S)
    text = draft.first("time_s", said("time"), (cluster.defaults.time, f"cluster {cluster.name}: defaults"))
    if text is None:
        return
    seconds = parse_time(text)
    if said("time")[0] is None and seconds > longest:
        seconds = longest  # nobody asked for the default, so it gives way
        draft.origins["time_s"] = f"cluster {cluster.name}: limit of the partition"
    if seconds <= 0:
        raise RequestError(f"time '{text}' is no time at all. Write HH:MM:SS.")
    draft.values["time_s"] = seconds
    if seconds > LONGEST_S:
        raise RequestError(f"time '{text}': Slurm counts to {LONGEST_S // 86400} days. Ask for less with --time.")
    if seconds > longest:
        longer = [p.name for p in cluster.partitions if p.max_time_s >= seconds]
        advice = (
            f"or take a partition that allows it: {', '.join(longer)}"
            if longer
            else "since no partition here allows it"
        )
        raise PlanError(
            f"time {format_time(seconds)}: {_place(cluster, partition)} allows "
            f"{format_time(longest)}. Ask for less with --time, {advice}."
        )


def ask_cores_and_memory(draft: Draft, cluster: Cluster, partition: Partition | None, site: Site) -> None:
    gpus, tasks, node = draft.values["gpus_per_node"], draft.values["tasks_per_node"], cluster.node_of(partition)
    cores = None
    if node.cpus_per_gpu and gpus:
        cores = max(node.cpus_per_gpu * gpus // tasks, 1)
    # Without it torchrun gives each rank one thread, and an optimizer on the host crawls.
    here = max(site.hardware.cpus // tasks, 1) if site.scheduler == "local" and site.hardware else None
    draft.first(
        "cpus_per_task",
        (_asked_cores(draft, cluster, node), "--sbatch"),
        (cores, f"cluster {cluster.name}: node.cpus_per_gpu"),
        (here, "detected: the cores of this machine over its ranks"),
    )
    _check_memory(draft, cluster, partition)
    share = _memory_share(cluster.request.memory, node, gpus)
    if share is None:
        draft.put("mem", None, "not set")
    else:
        # The profile counts decimal GB, Slurm's M is 2^20: round down, a GiB too much is charged as another GPU.
        draft.put("mem", f"{int(share * 1e9 / 2**20)}M", f"cluster {cluster.name}: node.mem_gb_per_gpu")


def _asked_cores(draft: Draft, cluster: Cluster, node: Node) -> int | None:
    """Cores per rank of `--sbatch cpus-per-task=N`, where N counts for each task that the launcher asks Slurm for."""
    text: str | None = draft.values["sbatch"].get("cpus-per-task")
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise RequestError(f"--sbatch cpus-per-task={text}: a whole number is needed.")
    gpus: int = draft.values["gpus_per_node"]
    tasks: int = draft.values["tasks_per_node"]
    asked = int(text) * slurm_tasks_per_node(draft.values["launcher"], tasks)
    limits = [(node.cpus, "cores per node")]
    if node.enforce_ratio and node.cpus_per_gpu:
        limits.append((node.cpus_per_gpu * gpus, f"cores for {gpus} GPUs"))
    for limit, what in limits:
        if limit is not None and asked > limit:
            raise PlanError(
                f"--sbatch cpus-per-task={text} asks for {asked} cores: cluster {cluster.name} has {limit} {what}."
            )
    return max(asked // tasks, 1)


def _check_memory(draft: Draft, cluster: Cluster, partition: Partition | None) -> None:
    """Hold the memory that --sbatch asks for to what a node has."""
    values, node = draft.values, cluster.node_of(partition)
    cores = (values["cpus_per_task"] or 1) * values["tasks_per_node"]
    for name, times in (("mem", 1), ("mem-per-cpu", cores), ("mem-per-gpu", values["gpus_per_node"])):
        text = values["sbatch"].get(name)
        if text is None:
            continue
        size = memory_bytes(text)
        if size is None:
            raise RequestError(
                f"--sbatch {name}={text}: not an amount. Write a whole number with M, G or T, as in 64G."
            )
        if node.mem_gb and size * times > node.mem_gb * 1e9:
            raise PlanError(
                f"--sbatch {name}={text} asks for {size * times / 2**30:.0f}G on a node: {_place(cluster, partition)} "
                f"has {node.mem_gb * 1e9 / 2**30:.0f}G there. Ask for less."
            )


def slurm_tasks_per_node(launcher: str, ranks_per_node: int) -> int:
    """How many tasks per node Slurm is asked for: some launchers are one that starts the ranks itself."""
    return 1 if find_launcher(launcher).is_one_task else ranks_per_node


def _memory_share(style: str, node: Node, gpus: int) -> float | None:
    """Decimal GB for the memory flag of that style; None where none is given."""
    if style == "omit" or node.mem_gb_per_gpu is None or not gpus:
        return None
    if style == "mem-per-cpu":
        return node.mem_gb_per_gpu / node.cpus_per_gpu if node.cpus_per_gpu else None
    return node.mem_gb_per_gpu * (gpus if style == "mem" else 1)
