"""What a job asks Slurm for, held to the limits of the site: partition, nodes and GPUs, account, time, cores, memory."""

from __future__ import annotations

import re
from typing import Any

from hpc_llm.errors import PlanError, RequestError, unknown_name
from hpc_llm.plan.draft import FALLBACKS, Draft, Said, Site, one_line, positive
from hpc_llm.plan.limits import Asked, JobQos, hold, most_allowed, place_of, sizes
from hpc_llm.site.account_pattern import fits
from hpc_llm.site.cluster import Cluster, Gpu, Node, Partition
from hpc_llm.site.sbatch_options import Source, memory_bytes, named_nodes, not_known, read_options, rivals
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
        names = [p.name for p in cluster.partitions]
        several = f"--partition {name}: the plan depends on the partition's GPUs and limits. Name one of them."
        is_list = set(name.split(",")) <= set(names)
        raise PlanError(several if is_list else unknown_name("partition", name, names, where=f"cluster {cluster.name}"))
    draft.first(
        "partition", (name, origin), (partition and partition.name, f"cluster {cluster.name}: default partition")
    )
    return partition


def _without_scheduler(what: str, value: Any, draft: Draft) -> None:
    if value:
        draft.notices.append(f"{what} {value} has no meaning without a scheduler and is left out")


def ask_resources(
    said: Said, cluster: Cluster, partition: Partition | None, qos: JobQos, gpu: Gpu, site: Site, draft: Draft
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
    _check_gpus(gpus, per_node, gpu, cluster, place_of(cluster, partition))
    _check_size(cluster, partition, qos, draft)
    if site.scheduler == "local" and nodes > 1:
        raise PlanError(
            f"{nodes} nodes: cluster {cluster.name} runs on this machine, without a scheduler. Use --nodes 1."
        )
    draft.put("tasks_per_node", max(gpus, 1), "computed: one rank per GPU")
    launch = cluster.launch
    name = launch.single_node if nodes == 1 else launch.multi_node
    draft.put("launcher", name, f"cluster {cluster.name}: launch.{'single' if nodes == 1 else 'multi'}_node")


def _check_gpus(gpus: int, per_node: int, gpu: Gpu, cluster: Cluster, where: str) -> None:
    if gpus < 0 or gpus > per_node:
        has = f"{per_node} x {gpu.model}" if per_node else "no GPU"
        fewest = 0 if cluster.request.gpu_style == "none" else min(1, per_node)
        choice = f"Choose --gpus-per-node {fewest}..{per_node}" if per_node else "Leave --gpus-per-node out"
        raise PlanError(f"{gpus} GPUs per node: {where} has {has} per node. {choice}.")
    if gpus == 0 and per_node and cluster.request.gpu_style != "none":
        raise PlanError(f"0 GPUs per node: every job on {where} asks for a GPU. Choose --gpus-per-node 1..{per_node}.")


def _check_size(cluster: Cluster, partition: Partition | None, qos: JobQos, draft: Draft) -> None:
    for asked in sizes(draft):
        hold(asked, cluster, partition, qos, draft)
    nodes = draft.values["nodes"]
    if nodes > MOST_NODES:
        raise PlanError(f"{nodes} nodes: no cluster has so many. Ask for fewer with --nodes.")


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
    draft.notices += [f"--sbatch {name}: {why}" for name in options if (why := not_known(name))]


def _decided(draft: Draft, cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Options of sbatch beside those that no request may give: their value without the request, and who says so."""
    values, site = draft.values, f"cluster {cluster.name}"
    options = {name: (value, f"{site}: request.extra") for name, value in cluster.extra_options.items()}
    if cluster.request.constraint:
        options["constraint"] = (cluster.request.constraint, f"{site}: request.constraint")
    if cluster.request.exclusive:
        options["exclusive"] = ("", f"{site}: request.exclusive")
    if values["cpus_per_task"] is not None:
        tasks = values["tasks_per_node"]
        cores = values["cpus_per_task"] * tasks // slurm_tasks_per_node(values["launcher"], tasks)
        options["cpus-per-task"] = (str(cores), draft.origins["cpus_per_task"])
    if values["mem"] is not None:
        options[cluster.request.memory] = (values["mem"], draft.origins["mem"])
    return options


def _tell_replaced(draft: Draft, cluster: Cluster) -> dict[str, str]:
    """Say of each option of the request which other it replaces; option -> where it comes from, with that."""
    options, decided = draft.values["sbatch"], _decided(draft, cluster)
    origins = {}
    for name, value in options.items():
        for other in (name, *rivals(name)):
            if other not in decided or (other, decided[other][0]) == (name, value):
                continue
            was, who = decided[other]
            instead = f"{other}={was}" if was else other
            given = f"--sbatch {name}={value}" if value else f"--sbatch {name}"
            draft.notices.append(f"{given} takes the place of {instead} ({who})")
            origins[name] = f"{draft.origins['sbatch']}, instead of {instead} ({who})"
    return origins


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


def ask_time(said: Said, cluster: Cluster, partition: Partition | None, qos: JobQos, draft: Draft) -> None:
    text = draft.first("time_s", said("time"), (cluster.defaults.time, f"cluster {cluster.name}: defaults"))
    if text is None:
        return
    seconds = parse_time(text)
    if seconds <= 0:
        raise RequestError(f"time '{text}' is no time at all. Write HH:MM:SS.")
    if seconds > LONGEST_S:
        raise RequestError(f"time '{text}': Slurm counts to {LONGEST_S // 86400} days. Ask for less with --time.")
    asked = Asked(
        what="time",
        amount=seconds,
        said=f"time {format_time(seconds)}",
        less="Ask for less with --time",
        shown=format_time,
    )
    most = most_allowed(asked, cluster, partition, qos)
    if said("time")[0] is None and most is not None and seconds > most[0]:
        draft.put("time_s", most[0], f"cluster {cluster.name}: limit of the {most[1]}")
        return  # nobody asked for the default, so it gives way
    draft.values["time_s"] = seconds
    hold(asked, cluster, partition, qos, draft)


def ask_cores_and_memory(draft: Draft, cluster: Cluster, partition: Partition | None, site: Site) -> None:
    gpus, tasks, node = draft.values["gpus_per_node"], draft.values["tasks_per_node"], cluster.node_of(partition)
    cores = None
    if node.cpus_per_gpu and gpus:
        cores = max(node.cpus_per_gpu * gpus // tasks, 1)
    # Without it torchrun gives each rank one thread, and an optimizer on the host crawls.
    here = max(site.hardware.cpus // tasks, 1) if site.scheduler == "local" and site.hardware else None
    draft.first(
        "cpus_per_task",
        (cores, f"cluster {cluster.name}: node.cpus_per_gpu"),
        (here, "detected: the cores of this machine over its ranks"),
    )
    share = _memory_share(cluster.request.memory, node, gpus)
    # The profile counts decimal GB, Slurm's M is 2^20: round down, a GiB too much is charged as another GPU.
    mem = None if share is None else f"{int(share * 1e9 / 2**20)}M"
    draft.first("mem", (mem, f"cluster {cluster.name}: node.mem_gb_per_gpu"))
    _replace(draft, cluster, node)
    _check_options(draft, cluster, partition)


def _replace(draft: Draft, cluster: Cluster, node: Node) -> None:
    """Let the request's own options decide what the plan keeps of them."""
    asked, options = _asked_cores(draft, cluster, node), draft.values["sbatch"]
    origins = _tell_replaced(draft, cluster)
    draft.origins.update({f"sbatch.{name}": origin for name, origin in origins.items()})
    if asked is not None:
        draft.put("cpus_per_task", asked, origins.get("cpus-per-task", draft.origins["sbatch"]))
    style = cluster.request.memory
    for name in (style, *rivals(style)):
        if name in options and draft.values["mem"] is not None:
            draft.put("mem", options[name] if name == style else None, origins.get(name, draft.origins["sbatch"]))


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


def _check_options(draft: Draft, cluster: Cluster, partition: Partition | None) -> None:
    """Hold what the request's and the profile's own options ask of a node to what it has, and named nodes to their number."""
    options = draft.values["sbatch"]
    replaced = {other for name in options for other in (name, *rivals(name))}
    given = [("--sbatch ", name, value) for name, value in options.items()]
    given += [
        ("request.extra: --", name, value) for name, value in cluster.extra_options.items() if name not in replaced
    ]
    for place, name, value in given:
        said = f"{place}{name}={value}"
        _check_memory(said, name, value, draft, cluster, partition)
        cores = cluster.node_of(partition).cpus
        if name == "mincpus" and cores and value.isdecimal() and int(value) > cores:
            raise PlanError(f"{said}: {place_of(cluster, partition)} has {cores} cores per node. Ask for less.")
        names = named_nodes(value) if name == "nodelist" else None
        if names is not None and names > draft.values["nodes"]:
            raise PlanError(
                f"{said} names {names} nodes, which the job would all get, and the plan has {draft.values['nodes']}. "
                f"Use --nodes {names}, or name fewer."
            )


def _check_memory(
    said: str, name: str, value: str, draft: Draft, cluster: Cluster, partition: Partition | None
) -> None:
    values, node = draft.values, cluster.node_of(partition)
    cores = (values["cpus_per_task"] or 1) * values["tasks_per_node"]
    times = {"mem": 1, "mem-per-cpu": cores, "mem-per-gpu": values["gpus_per_node"]}.get(name)
    if times is None:
        return
    size = memory_bytes(value)
    if size is None:
        raise RequestError(f"{said}: not an amount. Write a whole number with M, G or T, as in 64G.")
    if value.isdecimal() and 0 < size * times < 2**30:
        draft.notices.append(f"{said} is {size * times / 2**20:.0f} MiB on a node: without a unit sbatch reads M")
    if node.mem_gb and size * times > node.mem_gb * 1e9:
        raise PlanError(
            f"{said} asks for {size * times / 2**30:.0f}G on a node: {place_of(cluster, partition)} "
            f"has {node.mem_gb * 1e9 / 2**30:.0f}G there. Ask for less."
        )


def slurm_tasks_per_node(launcher: str, ranks_per_node: int) -> int:
    """How many tasks per node Slurm is asked for: torchrun and python are one that starts the ranks itself."""
    return 1 if launcher in ("torchrun", "python") else ranks_per_node


def _memory_share(style: str, node: Node, gpus: int) -> float | None:
    """Decimal GB for the memory flag of that style; None where none is given."""
    if style == "omit" or node.mem_gb_per_gpu is None or not gpus:
        return None
    if style == "mem-per-cpu":
        return node.mem_gb_per_gpu / node.cpus_per_gpu if node.cpus_per_gpu else None
    return node.mem_gb_per_gpu * (gpus if style == "mem" else 1)
