"""What a job asks Slurm for, held to the limits of the site: partition, account, time, cores, memory."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hpc_llm.errors import AccountError, PlanError, RequestError, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning.draft import Draft, Said, Site, one_line
from hpc_llm.planning.limits import (
    JobQos,
    asked_time,
    check_share,
    hold,
    memory_flag,
    memory_share,
    most_allowed,
    place_of,
    sizes,
)
from hpc_llm.planning.parts import Parallel
from hpc_llm.site.account_pattern import fits
from hpc_llm.site.cluster import Cluster, Node, Partition
from hpc_llm.site.launchers import find_launcher
from hpc_llm.site.profiles import where_to_add_partitions, where_to_change
from hpc_llm.site.sbatch_options import (
    Source,
    asks_for_gpus,
    not_known,
    read_options,
    rivals,
)
from hpc_llm.site.sbatch_sizes import memory_bytes, named_nodes
from hpc_llm.site.slurm_time import LONGEST_S, format_time, parse_time
from hpc_llm.text.numbers import MOST_DIGITS, whole_number

MOST_NODES = 20_000
"""No cluster under Slurm has had more; who asks for more has mistyped it."""
_CORES = ("mincpus", "sockets-per-node", "cores-per-socket")
_WITH_KEPT = 8 / 7
"""A node's cores over those that a job may use: a site keeps one of eight for itself, as LUMI does, seldom more."""
_ENDLESS = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")


def ask_partition(said: Said, cluster: Cluster, site: Site, draft: Draft) -> tuple[Partition | None, str | None]:
    """The partition's facts, where the profile has them, and the name to ask for."""
    name, origin = said("partition")
    if name is not None:
        one_line("partition", name, origin)
        _one_name("partition", name, origin, but=",")
    partition = cluster.partition(name)
    if "partition" not in site.facts.requests:
        _without_meaning("partition", name, site, draft)
        return partition, draft.put("partition", None, _nobody_asked(site))
    if partition is None and cluster.partitions and name is not None:
        names = [p.name for p in cluster.partitions]
        several = f"--partition {name}: the plan depends on the partition's GPUs and limits. Name one of them."
        is_list = set(name.split(",")) <= set(names)
        add = f"One that the site has besides is added under {where_to_add_partitions(cluster.name)}."
        raise PlanError(
            several
            if is_list
            else unknown_name("partition", name, names, where=f"cluster {cluster.name}", next_step=add)
        )
    default = (partition and partition.name, f"cluster {cluster.name}: default partition")
    return partition, draft.first("partition", (name, origin), default)


def _one_name(what: str, text: str, origin: str, listing: str = "", but: str = "") -> None:
    """Raise a RequestError for what no name of Slurm's holds: blanks of any kind, commas of lists, the signs around a word to be replaced."""
    sign = next(
        (sign for sign in text if (sign.isspace() or not sign.isprintable() or sign in ",<>") and sign not in but), None
    )
    if sign is not None:
        found = (
            "a blank"
            if sign == " "
            else repr(sign)
            if sign in ",<>"
            else f"a character that looks like a blank (U+{ord(sign):04X})"
        )
        raise RequestError(
            f"{what} {text!r} ({origin}) holds {found}, and no {what} is called so. Give --{what} NAME.{listing}"
        )


def _without_meaning(what: str, value: Any, site: Site, draft: Draft) -> None:
    if value:
        facts = site.facts
        where = "without a scheduler" if facts.is_this_machine else f"for {facts.title}"
        draft.notices.append(f"{what} {value} has no meaning {where} and is left out")


def _nobody_asked(site: Site) -> str:
    return "no scheduler" if site.facts.is_this_machine else f"{site.facts.title} has none"


def ask_options(said: Said, cluster: Cluster, site: Site, draft: Draft) -> dict[str, str]:
    """The options of --sbatch."""
    source = Source(
        place="--sbatch",
        forbidden=cluster.request.forbid,
        refuser=f"cluster {cluster.name}",
        counts_gpus=cluster.counts_gpus,
    )
    options = read_options(said.experiment.sbatch, source)
    if "sbatch" not in site.facts.requests:
        _without_meaning("--sbatch", ", ".join(options), site, draft)
        options = {}
    for name, value in options.items():
        if not cluster.counts_gpus and asks_for_gpus(name, value):
            draft.notices.append(
                f"--sbatch {name}={value}: the profile of cluster {cluster.name} has no GPU, so the plan counts none and the "
                "ranks are as many as without it"
            )
    options = draft.put("sbatch", options, said("sbatch")[1] if options else "not set")
    draft.notices += [f"--sbatch {name}: {why}" for name in options if (why := not_known(name))]
    if "sbatch" in site.facts.requests:
        own = (name for name in cluster.extra_options if name not in options)
        draft.notices += [f"request.extra of cluster {cluster.name}: {why}" for name in own if (why := not_known(name))]
    return dict(options)


def ask_account(said: Said, cluster: Cluster, site: Site, draft: Draft) -> str | None:
    rule = cluster.account
    if "account" not in site.facts.requests:
        _without_meaning("account", said("account")[0], site, draft)
        draft.put("account", None, _nobody_asked(site))
        return None
    account: str | None = draft.first(
        "account",
        said("account"),
        (site.account, "environment: SBATCH_ACCOUNT"),
        (rule.default, f"cluster {cluster.name}: account.default"),
    )
    listing = f" `{rule.list_command}` lists yours." if rule.list_command else ""
    if account is None:
        if rule.required:
            form = f" that matches {rule.pattern}" if rule.pattern else ""
            raise AccountError(
                f"cluster {cluster.name} needs an account. Give --account NAME (in Python account=) or set SBATCH_ACCOUNT.{listing} "
                f"To look at a plan or a script, `hpc-llm render` takes any NAME{form}."
            )
        return None
    one_line("account", account, draft.origins["account"])
    _one_name("account", account, draft.origins["account"], listing)
    if rule.pattern and not fits(rule.pattern, account):
        is_asked = account == said("account")[0]
        of = "" if is_asked else f" ({draft.origins['account']})"
        own = (
            f" Where each cluster has its own, leave --account out and write account: {{default: NAME}} into "
            f"{where_to_change('clusters', cluster.name)}."
        )
        raise PlanError(
            f"account '{account}'{of} does not fit cluster {cluster.name}, whose accounts match {rule.pattern}.{listing}{own if is_asked else ''}"
        )
    return account


def ask_time(ask: Ask, draft: Draft) -> int | None:
    """Wall time limit in seconds, once nodes, GPUs and time are within the limits of partition and QOS.

    They are held to them together: what is advised in place of one limit must allow the other amounts as well.
    """
    seconds = _time_s(ask, draft)
    size = sizes(ask.parallel.nodes, ask.parallel.gpus_per_node)
    time = None if seconds is None else asked_time(seconds)
    is_asked = time is not None and ask.said("time")[0] is not None
    amounts = [*size, time] if is_asked and time is not None else size
    for asked in amounts:
        hold(asked, amounts, ask.cluster, ask.partition, ask.qos, draft)
    if ask.parallel.nodes > MOST_NODES:
        raise PlanError(f"{ask.parallel.nodes} nodes: no cluster has so many. Ask for fewer with --nodes.")
    if time is None or is_asked:
        return seconds
    most = most_allowed(time, ask.cluster, ask.partition, ask.qos)
    if most is None or time.amount <= most[0]:
        return seconds
    # Nobody asked for the default, so it gives way.
    draft.notices.append(
        f"time is {format_time(most[0])}, the limit of the {most[1]}, in place of {format_time(time.amount)} ({draft.origins['time_s']})"
    )
    limit: int = draft.computed("time_s", most[0], f"cluster {ask.cluster.name}: limit of the {most[1]}")
    return limit


def _time_s(ask: Ask, draft: Draft) -> int | None:
    default = (ask.cluster.defaults.time, f"cluster {ask.cluster.name}: defaults")
    text = draft.first("time_s", ask.said("time"), default)
    if text is None:
        return None
    try:
        seconds = parse_time(text)
    except RequestError as error:
        raise RequestError(f"time {error}") from None
    if ask.said("time")[0] is not None and re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text.strip()):
        draft.notices.append(f"time {text} is {format_time(seconds)}: Slurm reads MM:SS, and HH:MM:SS with the seconds")
    if seconds <= 0:
        raise RequestError(f"time '{text}' is no time at all. Write HH:MM:SS.")
    if seconds > LONGEST_S:
        raise RequestError(f"time '{text}': Slurm counts to {LONGEST_S // 86400} days. Ask for less with --time.")
    return seconds


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a job is asked for from, once its place and its ranks are decided."""

    said: Said
    site: Site
    cluster: Cluster
    partition: Partition | None
    qos: JobQos
    options: Mapping[str, str]
    """Those of --sbatch."""
    parallel: Parallel

    @property
    def node(self) -> Node:
        return self.cluster.node_of(self.partition)

    def slurm_tasks(self, launcher: str) -> int:
        """Tasks per node that Slurm is asked for."""
        return slurm_tasks_per_node(launcher, self.parallel.tasks_per_node)


def ask_cores_and_memory(ask: Ask, launcher: str, draft: Draft) -> tuple[int | None, str | None]:
    """CPU cores per rank, and the value of the site's flag for memory."""
    gpus, ranks, node, cluster = ask.parallel.gpus_per_node, ask.parallel.tasks_per_node, ask.node, ask.cluster
    hardware = ask.site.hardware if ask.site.facts.is_this_machine else None
    share = max(node.cpus_per_gpu * gpus // ranks, 1) if node.cpus_per_gpu and gpus else None
    check_share("cpus_per_gpu", share and share * ranks, node.cpus, gpus, cluster.name)
    # Without it torchrun gives each rank one thread, and an optimizer on the host crawls.
    here = max(hardware.cpus // ranks, 1) if hardware else None
    cores: int | None = draft.first(
        "cpus_per_task",
        (share, f"cluster {cluster.name}: node.cpus_per_gpu"),
        (here, "detected: the cores of this machine over its ranks"),
    )
    memory = memory_share(cluster.request.memory, node, gpus)
    check_share("mem_gb_per_gpu", memory and (node.mem_gb_per_gpu or 0) * gpus, node.mem_gb, gpus, cluster.name)
    mem = None if memory is None else memory_flag(memory)
    draft.first("mem", (mem, f"cluster {cluster.name}: node.mem_gb_per_gpu"))
    cores, mem = _replaced(ask, launcher, cores, mem, draft)
    _check_options(ask, cores, draft)
    return cores, mem


def _replaced(
    ask: Ask, launcher: str, cores: int | None, mem: str | None, draft: Draft
) -> tuple[int | None, str | None]:
    """Cores and memory as the request's own options of sbatch have them."""
    decided = _decided(ask, launcher, cores, mem, draft)
    asked, origins, own = (
        _asked_cores(ask, launcher),
        _tell_replaced(ask.options, decided, draft),
        draft.origins["sbatch"],
    )
    draft.origins.update({f"sbatch.{name}": origin for name, origin in origins.items()})
    if asked is not None:
        cores = draft.computed("cpus_per_task", asked, origins.get("cpus-per-task", own))
    style = ask.cluster.request.memory
    for name in (style, *rivals(style)):
        if name in ask.options and mem is not None:
            mem = draft.computed("mem", ask.options[name] if name == style else None, origins.get(name, own))
    return cores, mem


def _decided(ask: Ask, launcher: str, cores: int | None, mem: str | None, draft: Draft) -> dict[str, tuple[str, str]]:
    """Options of sbatch beside those that no request may give: their value without the request, and who says so."""
    request, site = ask.cluster.request, f"cluster {ask.cluster.name}"
    options = {name: (value, f"{site}: request.extra") for name, value in ask.cluster.extra_options.items()}
    if request.constraint:
        options["constraint"] = (request.constraint, f"{site}: request.constraint")
    if request.exclusive:
        options["exclusive"] = ("", f"{site}: request.exclusive")
    if cores is not None:
        per_task = cores * ask.parallel.tasks_per_node // ask.slurm_tasks(launcher)
        options["cpus-per-task"] = (str(per_task), draft.origins["cpus_per_task"])
    if mem is not None:
        options[request.memory] = (mem, draft.origins["mem"])
    return options


def _tell_replaced(options: Mapping[str, str], decided: Mapping[str, tuple[str, str]], draft: Draft) -> dict[str, str]:
    """Say of each option of the request which other it replaces; option -> where it comes from, with that."""
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


def _asked_cores(ask: Ask, launcher: str) -> int | None:
    """Cores per rank of `--sbatch cpus-per-task=N`, where N counts for each task that the launcher asks Slurm for."""
    text = ask.options.get("cpus-per-task")
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise RequestError(f"--sbatch cpus-per-task={text}: a whole number is needed.")
    gpus, ranks, node = ask.parallel.gpus_per_node, ask.parallel.tasks_per_node, ask.node
    asked = int(text) * ask.slurm_tasks(launcher)
    limits = [(node.cpus, "cores per node")]
    if node.enforce_ratio and node.cpus_per_gpu:
        limits.append((node.cpus_per_gpu * gpus, f"cores for {gpus} GPUs"))
    for limit, what in limits:
        if limit is not None and asked > limit:
            raise PlanError(
                f"--sbatch cpus-per-task={text} asks for {asked} cores: cluster {ask.cluster.name} has {limit} {what}. "
                f"Ask for {limit // ask.slurm_tasks(launcher)} at most."
            )
    return max(asked // ranks, 1)


def _check_options(ask: Ask, cores: int | None, draft: Draft) -> None:
    """Hold what the request's and the profile's own options ask of a node to what it has, and named nodes to their number."""
    replaced = {other for name in ask.options for other in (name, *rivals(name))}
    own = ask.cluster.extra_options
    given = [("--sbatch ", name, value) for name, value in ask.options.items()]
    given += [("request.extra: --", name, value) for name, value in own.items() if name not in replaced]
    for place, name, value in given:
        said = f"{place}{name}={value}"
        if name.startswith(("mem", "nodelist", *_CORES)) and _ENDLESS.search(value):
            raise RequestError(
                f"{place}{name}: it has a number of more than {MOST_DIGITS} digits, which Slurm does not know."
            )
        _check_memory(said, name, value, ask, cores, draft)
        is_arbitrary = name == "distribution" and value.lower().startswith("arbitrary")
        if is_arbitrary and not any(other == "nodelist" for _, other, _ in given):
            raise RequestError(
                f"{said}: sbatch takes it beside a nodelist alone, with a node for each task. Add that, or take block or cyclic."
            )
        _check_cores(said, name, {one: text for _, one, text in given}, ask)
        names = named_nodes(value) if name == "nodelist" else None
        if names is not None and names > ask.parallel.nodes:
            raise PlanError(
                f"{said} names {names} nodes, which the job would all get, and the plan has {ask.parallel.nodes}. "
                f"Use --nodes {names}, or name fewer."
            )


def _check_cores(said: str, name: str, given: Mapping[str, str], ask: Ask) -> None:
    """Hold the cores that an option wants a node to have to those that the profile knows of."""
    most = ask.node.cpus
    if name not in _CORES or most is None:
        return
    counts = [whole_number(given.get(one, "")) or 1 for one in (_CORES[1:] if name in _CORES[1:] else (name,))]
    if math.prod(counts) > most * (_WITH_KEPT if name in _CORES[1:] else 1):
        raise PlanError(f"{said}: {place_of(ask.cluster, ask.partition)} has {most} cores per node. Ask for less.")


def _check_memory(said: str, name: str, value: str, ask: Ask, cores: int | None, draft: Draft) -> None:
    on_node = (cores or 1) * ask.parallel.tasks_per_node
    times = {"mem": 1, "mem-per-cpu": on_node, "mem-per-gpu": ask.parallel.gpus_per_node}.get(name)
    if times is None:
        return
    size = memory_bytes(value)
    if size is None:
        raise RequestError(f"{said}: not an amount. Write a whole number with M, G or T, as in 64G.")
    if value.isdecimal() and 0 < size * times < 2**30:
        draft.notices.append(f"{said} is {size * times / 2**20:.0f} MiB on a node: without a unit sbatch reads M")
    if ask.node.mem_gb and size * times > ask.node.mem_gb * 1e9:
        there = int(ask.node.mem_gb * 1e9)
        raise PlanError(
            f"{said} asks for {-(-size * times // 2**30)}G on a node: {place_of(ask.cluster, ask.partition)} "
            f"has {there // 2**30}G there. Ask for at most {name}={there // times // 2**20}M."
        )


def slurm_tasks_per_node(launcher: str, ranks_per_node: int) -> int:
    """How many tasks per node Slurm is asked for: some launchers are one that starts the ranks itself."""
    return 1 if find_launcher(launcher).is_one_task else ranks_per_node
