"""The #SBATCH lines of a plan: what is asked of Slurm, each with where it comes from. Pure."""

from __future__ import annotations

from pathlib import Path

from hpc_llm.errors import PlanError, RequestError
from hpc_llm.job.render import HeaderLine, JobArray, Place
from hpc_llm.planning.experiment import Plan, PlanWithOrigins
from hpc_llm.planning.slurm_request import slurm_tasks_per_node
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.sbatch_options import asks_for_gpus, rivals
from hpc_llm.site.slurm_time import format_time
from hpc_llm.text.shell import sbatch_word


def header(planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None) -> list[HeaderLine]:
    """The #SBATCH lines that the site accepts."""
    flags = sbatch_flags(planned, cluster, place, array)
    return [HeaderLine(f"#SBATCH {_sbatch(name, value)}", origin) for name, (value, origin) in flags.items()]


def sbatch_flags(
    planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None
) -> dict[str, tuple[str | None, str]]:
    """Value and origin of each flag of sbatch; what --sbatch gives replaces what else would stand there."""
    plan, origins, site = planned.plan, planned.origins, f"cluster {cluster.name}"
    flags: dict[str, tuple[str | None, str]] = {"job-name": (plan.job.name, origins["job_name"])}
    if plan.job.account is not None:
        flags["account"] = (plan.job.account, origins["account"])
    if plan.job.partition is not None:
        flags["partition"] = (plan.job.partition, origins["partition"])
    flags["nodes"] = (str(plan.parallel.nodes), origins["nodes"])
    per_launcher = slurm_tasks_per_node(plan.job.launcher, plan.parallel.tasks_per_node)
    is_one = per_launcher != plan.parallel.tasks_per_node
    why = f"computed: {plan.job.launcher} starts the {plan.parallel.tasks_per_node} ranks of a node" if is_one else None
    flags["ntasks-per-node"] = (str(per_launcher), why or origins["tasks_per_node"])
    if plan.job.cpus_per_task is not None:
        cores = plan.job.cpus_per_task * plan.parallel.tasks_per_node // per_launcher
        flags["cpus-per-task"] = (str(cores), origins["cpus_per_task"])
    flags.update(_gpu_flags(plan, cluster, per_launcher))
    if plan.job.mem is not None:
        flags[cluster.request.memory] = (plan.job.mem, origins["mem"])
    if plan.job.time_s is not None:
        flags["time"] = (format_time(plan.job.time_s), origins["time_s"])
    if cluster.request.constraint:
        flags["constraint"] = (cluster.request.constraint, f"{site}: request.constraint")
    if cluster.request.exclusive:
        flags["exclusive"] = (None, f"{site}: request.exclusive")
    own, asked = (cluster.extra_options, f"{site}: request.extra"), (plan.job.sbatch, origins["sbatch"])
    for options, origin in (own, asked):
        for name, value in options.items():
            _add_flag(
                flags, name, value, origins.get(f"sbatch.{name}", origin) if options is plan.job.sbatch else origin
            )
    flags.update(_output_flags(place, cluster, array))
    for name in cluster.request.forbid:
        if name in flags:
            raise PlanError(f"cluster {cluster.name} refuses --{name}, which {flags[name][1]} asks for.")
    return flags


def _add_flag(flags: dict[str, tuple[str | None, str]], name: str, value: str, origin: str) -> None:
    """Put a flag in the place of what it excludes; only --gres holds several things, the GPUs first."""
    for other in rivals(name):
        flags.pop(other, None)
    before = (flags[name][0] or "").split(",") if name == "gres" and name in flags else []
    gpus = [one for one in before if asks_for_gpus(name, one)]
    if not asks_for_gpus(name, value):
        value = ",".join((*gpus, value))
    flags[name] = (value or None, origin)


def _gpu_flags(plan: Plan, cluster: Cluster, tasks_per_node: int) -> dict[str, tuple[str | None, str]]:
    style, count = cluster.request.gpu_style, plan.parallel.gpus_per_node
    if style == "none" or count == 0:
        return {}
    kind = f"{cluster.request.gpu_type}:" if cluster.request.gpu_type else ""
    values = {
        "gres": f"gpu:{kind}{count}",
        "gpus-per-node": f"{kind}{count}",
        "gpus": f"{kind}{count}",
        "gpus-per-task": f"{kind}{count // tasks_per_node}",
    }
    why = _no_even_share(style, plan, tasks_per_node)
    asked = _per_node(cluster) if why else style
    return {asked: (values[asked], f"cluster {cluster.name}: request.gpu_style{f' {style}, but {why}' if why else ''}")}


def _no_even_share(style: str, plan: Plan, tasks_per_node: int) -> str | None:
    """Why asking in that style might give a node another number of GPUs than the plan says; None where it cannot."""
    if style == "gpus" and plan.parallel.nodes > 1:
        return "Slurm may share a sum unevenly among nodes"
    if style == "gpus-per-task" and plan.parallel.gpus_per_node % tasks_per_node:
        return "the tasks of a node cannot share its GPUs evenly"
    return None


def _per_node(cluster: Cluster) -> str:
    """The option that asks for the GPUs of each node; the other one of them where the site refuses it."""
    return "gres" if "gpus-per-node" in cluster.request.forbid else "gpus-per-node"


def _output_flags(place: Place, cluster: Cluster, array: JobArray | None) -> dict[str, tuple[str | None, str]]:
    """Output goes straight into the run's folder; Slurm's own messages about the job then stand there too."""
    origin = "run id"
    flags: dict[str, tuple[str | None, str]] = {}
    base = str(array.folder if array else place.run_dir)
    if "\\" in base:
        raise RequestError(
            f"the folder {base} holds a backslash, at which Slurm stops filling in names. Use another --logs."
        )
    folder = base.replace("%", "%%")
    if array:
        limit = f"%{array.parallel}" if array.parallel else ""
        flags["array"] = (f"0-{len(array.tasks) - 1}{limit}", "computed: one task per run")
        folder += "/%a"
    run = RunPaths(Path(folder))
    flags["output"] = (str(run.stdout), origin)
    flags["error"] = (str(run.stderr), origin)
    flags["open-mode"] = ("append", "hpc-llm: a requeued job keeps what it printed")
    if "export" not in cluster.request.forbid:  # without it sbatch exports all, which such a profile says
        flags["export"] = (cluster.request.export.upper(), f"cluster {cluster.name}: request.export")
    return flags


def _sbatch(name: str, value: str | None) -> str:
    return f"--{name}" if value is None else f"--{name}={sbatch_word(value)}"
