"""Plan -> Script: the batch script, byte for byte what is submitted. Pure, but for reading the templates.

A name that is missing stops the rendering; every string of a user or a profile goes through a filter that makes it one
shell word. A template marks where a line comes from with `from(...)`; the marks
are taken out of the text and kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpc_llm import __version__
from hpc_llm.errors import PlanError, RequestError
from hpc_llm.job.support import Support
from hpc_llm.job.templating import render_template
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import Plan, PlanWithOrigins
from hpc_llm.planning.slurm_request import slurm_tasks_per_node
from hpc_llm.planning.synthetic import DESCRIPTION
from hpc_llm.records.run import RunPaths, Stop
from hpc_llm.site.cluster import Cluster, check_variable
from hpc_llm.site.launchers import Start, find_launcher
from hpc_llm.site.sbatch_options import asks_for_gpus, rivals
from hpc_llm.site.slurm_time import format_time
from hpc_llm.text.shell import sbatch_word, shell_comment, shell_expand, shell_word

WIDTH = 100
"""Columns of what is printed for reading."""
_OWN_WORDS = ("template", "default")
"""Origins that tell nothing."""
_MARK = "\x1f"


@dataclass(frozen=True)
class Script:
    """A batch script and, for each of its lines, where it comes from."""

    text: str
    origins: tuple[str, ...]

    def __str__(self) -> str:
        return self.text

    def explained(self, width: int = WIDTH) -> str:
        """The script with each line's origin at its right, for reading, not for running."""
        lines = zip(self.text.removesuffix("\n").split("\n"), self.origins, strict=True)
        shown = (row for line, origin in lines for row in arrow(line, "" if origin in _OWN_WORDS else origin, width))
        return "".join(f"{row}\n" for row in shown)


def folded(line: str, width: int = WIDTH) -> list[str]:
    """`line` in rows of at most `width` characters, the later ones behind an ellipsis.

    >>> folded("abcdefgh", 5)
    ['abcde', '… fgh']
    """
    rows = [line[:width]]
    rest = line[width:]
    while rest:
        rows.append(f"… {rest[: width - 2]}")
        rest = rest[width - 2 :]
    return rows


def arrow(line: str, origin: str, width: int = WIDTH) -> list[str]:
    """`line` in rows, with `<- origin` at the right end of the last one, or in a row of its own.

    >>> arrow("a=1", "file", 16), arrow("a=1234", "file", 12)
    (['a=1      <- file'], ['a=1234', '     <- file'])
    """
    rows = folded(line, width)
    if not origin:
        return rows
    tail = f"<- {origin}"[:width]
    if len(rows[-1]) + 2 + len(tail) <= width:
        return [*rows[:-1], rows[-1] + tail.rjust(width - len(rows[-1]))]
    return [*rows, tail.rjust(width)]


@dataclass(frozen=True)
class JobArray:
    """Several runs of one cluster as one job: `folder`/<task> links to the folder of each run."""

    folder: Path
    tasks: tuple[str, ...]
    """What each task is, for the reader of the script."""
    packages: tuple[str, ...]
    """What each of the runs must be able to import."""
    further: Mapping[tuple[str, ...], Sequence[int]] = field(default_factory=dict)
    """What only some of them must be able to import besides -> their tasks."""
    parallel: int | None = None
    """Most tasks at a time."""


@dataclass(frozen=True)
class Place:
    """Where a run will live, decided by the caller."""

    run_dir: Path
    support: Support
    """What the script does besides its work, and the training program."""
    python: Path
    """The interpreter that runs hpc-llm, used where a profile says `python.kind: current`."""
    templates: Path | None = None
    """Folder of templates that win over the bundled ones; None: nobody named one."""


def render(planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None = None) -> Script:
    """The script of one run, or of an array of runs that share everything but their folder."""
    plan, origins = planned.plan, planned.origins
    is_slurm = plan.job.scheduler == "slurm"
    cluster = cluster.on(cluster.partition(plan.job.partition))
    marked = render_template(
        {
            "plan": plan.to_dict(),
            "cluster": cluster.model_dump(mode="json"),
            "origins": dict(origins),
            "site": f"cluster {cluster.name}",
            "header": [asdict(line) for line in header(planned, cluster, place, array)] if is_slurm else [],
            "array": array and {"folder": str(array.folder), "tasks": list(array.tasks)},
            "run_dir": str(place.run_dir),
            "support": {"path": str(place.support.path), "digest": place.support.digest},
            "launcher": _launch(plan, cluster),
            "packages": list(tasks.required_packages([plan]) if array is None else array.packages),
            "further": [{"packages": list(more), "tasks": list(those)} for more, those in array.further.items()]
            if array
            else [],
            "python_folder": str(place.python.parent),
            "env_file": plan.job.env_file and _env_file(plan.job.env_file, cluster),
            "job_dirs": cluster.env.per_job_dirs,
            "variables": [asdict(variable) for variable in variables(plan, cluster, origins)],
            "synthetic": DESCRIPTION,
            "stop": {stop.name: stop.value for stop in Stop},
            "version": __version__,
        },
        {
            "q": shell_word,
            "expand": shell_expand,
            "comment": shell_comment,
            "worker": lambda task: tasks.find(task).worker,
        },
        _mark,
        place.templates,
    )
    return _unmarked(marked)


def _launch(plan: Plan, cluster: Cluster) -> dict[str, Any]:
    """What the launcher says of itself: its command, and whether its ranks are told where to meet."""
    launcher = find_launcher(plan.job.launcher)
    start = Start(nodes=plan.parallel.nodes, ranks_per_node=plan.parallel.tasks_per_node, launch=cluster.launch)
    return {"name": launcher.name, "command": launcher.command(start).split("\n"), "meets": launcher.meets(start)}


@dataclass(frozen=True)
class HeaderLine:
    text: str
    origin: str


def header(planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None) -> list[HeaderLine]:
    """The #SBATCH lines that the site accepts."""
    flags = sbatch_flags(planned, cluster, place, array)
    return [HeaderLine(_sbatch(name, value), origin) for name, (value, origin) in flags.items()]


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
    flags["ntasks-per-node"] = (str(per_launcher), origins["tasks_per_node"])
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
    flags["export"] = (cluster.request.export.upper(), f"cluster {cluster.name}: request.export")
    return flags


def _sbatch(name: str, value: str | None) -> str:
    return f"--{name}" if value is None else f"--{name}={sbatch_word(value)}"


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    origin: str
    site: bool
    """Whether ${NAME} in the value is expanded: in a profile it is, in a request it is not."""


def variables(plan: Plan, cluster: Cluster, origins: Mapping[str, str]) -> list[Variable]:
    """The environment variables of the job, a later group winning over an earlier one."""
    site = f"cluster {cluster.name}"
    groups = [("env.common", cluster.env.common)]
    if plan.parallel.nodes == 1:
        groups.append(("env.single_node", cluster.env.single_node))
    else:
        groups.append(("env.multi_node", cluster.env.multi_node))
    if plan.job.scheduler == "local":
        groups.append(("env.local", cluster.env.local))
    found: dict[str, Variable] = {}
    extensions = f"${{HOME}}/.cache/hpc-llm/{cluster.name}/torch_extensions"
    found["TORCH_EXTENSIONS_DIR"] = Variable(
        "TORCH_EXTENSIONS_DIR", extensions, "hpc-llm: operators compiled for one cluster stay apart", True
    )
    if plan.job.cpus_per_task is not None:
        found["OMP_NUM_THREADS"] = Variable(
            "OMP_NUM_THREADS", str(plan.job.cpus_per_task), origins["cpus_per_task"], False
        )
    if cluster.access.internet_compute == "no":
        found["HF_HUB_OFFLINE"] = Variable("HF_HUB_OFFLINE", "1", f"{site}: access.internet_compute", False)
    groups.insert(0, ("access.proxy_env", cluster.access.proxy_env))
    for group, values in groups:
        for name, value in values.items():
            found[name] = Variable(name, value, f"{site}: {group}", True)
    for name, value in plan.job.env.items():
        check_variable(name, value)
        found[name] = Variable(name, value, origins["env"], False)
    return list(found.values())


def _env_file(path: str, cluster: Cluster) -> str:
    """The path as one word of the script; in a profile variables are expanded, in a request they are not."""
    return shell_expand(path) if path == cluster.env.file else shell_word(path)


def _mark(origin: str) -> str:
    return _MARK + origin.replace(_MARK, " ").replace("\n", " ")


def _unmarked(marked: str) -> Script:
    lines, origins = [], []
    for line in marked.removesuffix("\n").split("\n"):
        text, _, origin = line.partition(_MARK)
        lines.append(text)
        origins.append(origin or "template")
    return Script("\n".join(lines) + "\n", tuple(origins))
