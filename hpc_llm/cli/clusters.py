"""hpc-llm clusters: list the profiles, or show one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from hpc_llm.cli.options import JsonOption
from hpc_llm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from hpc_llm.site.cluster import Charge, Cluster, Gpu

_VERIFY = "something essential rests on one source: check it before you rely on it"
"""What the status `verify` means."""


def register(app: typer.Typer) -> None:
    app.command("clusters")(clusters)


def clusters(
    name: Annotated[Optional[str], typer.Argument(metavar="[NAME]", help="Cluster to show.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of a profile, for editors.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the cluster profiles, or show one: GPUs, partitions and limits, prelude, sources, what is unverified."""
    from hpc_llm.api import catalogue

    if schema:
        print_json(catalogue.cluster_schema())
    elif name is not None:
        cluster = catalogue.cluster(name)
        if as_json:
            print_json(cluster.model_dump(mode="json", by_alias=True))
        else:
            _show(cluster)
    else:
        _list(as_json)


def _list(as_json: bool) -> None:
    from hpc_llm.api import catalogue

    found = catalogue.clusters()
    if as_json:
        print_json([c.model_dump(mode="json", by_alias=True) for c in found])
        return
    rows = [[c.name, gpu_text(c.gpu), c.status.state, c.title] for c in found]
    print_table(rows, ["cluster", "GPUs per node", "status", "what"])


def gpu_text(gpu: Gpu) -> str:
    """`8 x V100-SXM2-32GB 32 GiB`, or how it is found."""
    if gpu.vendor == "auto":
        return "detected"
    if gpu.vendor == "none":
        return "none"
    return f"{gpu.per_node} x {gpu.model}, {gpu.memory_gib:g} GiB"


def _charge_text(charge: Charge | None) -> str:
    return f"{charge.per_gpu_hour:g} {charge.unit}" if charge else ""


def _node_text(cluster: Cluster) -> str:
    """`32 cores, 720 GB; 4 cores, 90 GB per GPU (enforced)`, as far as known."""
    node = cluster.node
    whole = [f"{node.cpus} cores" if node.cpus else "", f"{node.mem_gb:g} GB" if node.mem_gb else ""]
    share = [
        f"{node.cpus_per_gpu} cores" if node.cpus_per_gpu else "",
        f"{node.mem_gb_per_gpu:g} GB" if node.mem_gb_per_gpu else "",
    ]
    parts = [", ".join(filter(None, whole)), ", ".join(filter(None, share))]
    parts[1] += " per GPU" + (" (enforced)" if node.enforce_ratio else "") if parts[1] else ""
    return "; ".join(filter(None, parts))


def _variables(cluster: Cluster) -> list[str]:
    """`NAME=value`, and when it is set where that is not always."""
    groups = [
        ("common", ""),
        ("single_node", " (one node)"),
        ("multi_node", " (several nodes)"),
        ("local", " (without Slurm)"),
    ]
    return [f"{k}={v}{when}" for group, when in groups for k, v in getattr(cluster.env, group).items()]


def _own_profile(cluster: Cluster) -> str:
    """How to begin a profile that changes some of these facts."""
    from hpc_llm.api.catalogue import own_profiles

    place = _as_a_shell_has_it(own_profiles() / "NAME.yaml")
    return f"to change some of this, write `extends: {cluster.name}` and what differs into {place}"


def _as_a_shell_has_it(path: Path) -> Path:
    """The path by the variable that it begins with: short enough to be read."""
    for name, shown in (("XDG_CONFIG_HOME", "$XDG_CONFIG_HOME"), ("HOME", "~")):
        begin = os.environ.get(name)
        if begin and path.is_relative_to(begin):
            return Path(shown, path.relative_to(begin))
    return path


def _partition_rows(cluster: Cluster) -> list[list[object]]:
    return [
        [
            p.name + (" (default)" if p.default else ""),
            p.time_limit,
            p.max_nodes,
            p.max_gpus,
            gpu_text(cluster.gpu_of(p)),
            _charge_text(cluster.charge_of(p)),
            p.note,
        ]
        for p in cluster.partitions
    ]


def _show(cluster: Cluster) -> None:
    prelude, account = cluster.prelude, cluster.account
    needed = f"required, matches {account.pattern}" if account.required and account.pattern else "required"
    can = cluster.gpu.capabilities if cluster.gpu.vendor != "none" else None
    print_facts(
        [
            ("cluster", f"{cluster.name}: {cluster.title}"),
            ("status", f"{cluster.status.state}, checked {cluster.status.checked}"),
            ("", _VERIFY if cluster.status.state == "verify" else ""),
            ("", cluster.status.note),
            ("scheduler", cluster.scheduler),
            ("", f"its Slurm is {' or '.join(cluster.slurm_clusters)}" if cluster.slurm_clusters else ""),
            ("account", (needed if account.required else "not required")),
            ("", f"default: {account.default}" if account.default else ""),
            ("", f"`{account.list_command}` lists yours" if account.list_command else ""),
            ("GPUs", f"{gpu_text(cluster.gpu)}{f', {cluster.gpu.arch}' if cluster.gpu.arch else ''}"),
            ("", ", ".join(f"{k} {'yes' if v else 'no'}" for k, v in can.model_dump().items()) if can else ""),
            ("node", _node_text(cluster)),
            ("per GPU-hour", _charge_text(cluster.charge)),
            ("GPU request", cluster.request.gpu_style),
            ("launch", f"{cluster.launch.single_node} on one node, {cluster.launch.multi_node} on several"),
            (
                "modules",
                f"{prelude.module_system}, start: {prelude.start}" if prelude.module_system != "none" else "none",
            ),
            ("", [f"use {folder}" for folder in prelude.use]),
            ("", [f"load {module}" for module in prelude.load]),
            ("", [f"load {module} (several nodes)" for module in prelude.load_multi_node]),
            ("Python", f"{prelude.python.kind} {prelude.python.env or ''}"),
            ("", prelude.python.make),
            ("variables", _variables(cluster)),
            ("network", cluster.network),
            ("internet", cluster.access.internet_compute),
            ("paths", [f"{k}: {v}" for k, v in cluster.paths.items()]),
            ("models", cluster.models),
            ("notes", cluster.notes),
            ("unverified", cluster.unverified),
            ("sources", cluster.sources),
            ("your own", _own_profile(cluster)),
        ]
    )
    if cluster.partitions:
        typer.echo()
        print_table(
            _partition_rows(cluster),
            ["partition", "time limit", "nodes per job", "GPUs per user", "GPUs per node", "per GPU-hour", "note"],
        )
    if cluster.qos:
        typer.echo()
        limits = ["time limit", "nodes per job", "GPUs per job", "GPUs per user"]
        print_table(_qos_rows(cluster), ["qos", *limits, "partitions", "lifts of these", "note"])


def _qos_rows(cluster: Cluster) -> list[list[str | int | None]]:
    rows: list[list[str | int | None]] = []
    for q in cluster.qos:
        lifts = "not known" if q.lifts is None else ", ".join(q.lifts) or "nothing"
        limits = [q.time_limit, q.max_nodes, q.max_gpus_per_job, q.max_gpus_per_user]
        rows.append(
            [q.name + (" (default)" if q.default else ""), *limits, ", ".join(q.partitions) or "all", lifts, q.note]
        )
    return rows
