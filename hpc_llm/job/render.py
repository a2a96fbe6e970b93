"""Plan -> Script: the batch script, byte for byte what is submitted. Pure, but for reading the templates.

A name that is missing stops the rendering; every string of a user or a profile goes through a filter that makes it one
shell word. A template marks where a line comes from with `from(...)`; the marks
are taken out of the text and kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from hpc_llm import __version__
from hpc_llm.immutable import dataclass
from hpc_llm.job.support import Support
from hpc_llm.job.templating import own_templates, render_template
from hpc_llm.planning import tasks
from hpc_llm.planning.experiment import Plan, PlanWithOrigins
from hpc_llm.planning.profilers import command_of
from hpc_llm.planning.synthetic import DESCRIPTION
from hpc_llm.records.compiled import caches_of
from hpc_llm.records.run import Stop
from hpc_llm.site.cluster import Cluster, check_variable
from hpc_llm.site.launchers import Start, find_launcher
from hpc_llm.site.schedulers import SchedulerFacts, find_scheduler
from hpc_llm.text.shell import shell_comment, shell_expand, shell_word, variables_in

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
    study: str | None = None
    """Name of the study of which they are runs; None where they are a sweep over methods alone."""


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
    scheduler = find_scheduler(plan.job.scheduler)
    cluster = cluster.on(cluster.partition(plan.job.partition))
    header = scheduler.header(planned, cluster, place, array)
    marked = render_template(
        {
            "plan": plan.to_dict(),
            "cluster": cluster.model_dump(mode="json"),
            "origins": dict(origins),
            "site": f"cluster {cluster.name}",
            "header": [asdict(line) for line in header],
            "scheduler": _scheduler(scheduler),
            "array": array and {"folder": str(array.folder), "tasks": list(array.tasks), "study": array.study},
            "run_dir": str(place.run_dir),
            "support": {"path": str(place.support.path), "digest": place.support.digest},
            "launcher": _launch(plan, cluster, origins["launcher"]),
            "packages": list(tasks.required_packages([plan]) if array is None else array.packages),
            "further": [{"packages": list(more), "tasks": list(those)} for more, those in array.further.items()]
            if array
            else [],
            "path_variables": path_variables(cluster),
            "python_folder": str(place.python.parent),
            "env_file": plan.job.env_file and _env_file(plan.job.env_file, cluster),
            "profiler": _profiler(plan),
            "search": tasks.find(plan.task).search,
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
    script = _unmarked(marked)
    if own := own_templates(place.templates):
        _check_own(script, header, own, cluster)
    return script


def _check_own(script: Script, header: Sequence[HeaderLine], templates: Sequence[Path], cluster: Cluster) -> None:
    from hpc_llm.job.own_script import check_own_script
    from hpc_llm.site.sbatch_options import Source

    forbidden, refuser = cluster.request.forbid, f"cluster {cluster.name}"
    site = Source(place=str(templates[0]), forbidden=forbidden, refuser=refuser, counts_gpus=cluster.counts_gpus)
    check_own_script(script.text, [line.line for line in header], templates, site)


def path_variables(cluster: Cluster) -> list[str]:
    """The variables in what the profile names before its own are set, which the job need not have: who runs it, and the home folder, it knows."""
    prelude, python = cluster.prelude, cluster.prelude.python
    named = [*prelude.init, *prelude.use, python.env or "", python.hook]
    return [name for name in variables_in(named) if name not in ("HOME", "USER")]


def _launch(plan: Plan, cluster: Cluster, origin: str) -> dict[str, Any]:
    """What the launcher says of itself: its command, where that comes from, and whether its ranks are told where to meet."""
    launcher = find_launcher(plan.job.launcher)
    start = Start(nodes=plan.parallel.nodes, ranks_per_node=plan.parallel.tasks_per_node, launch=cluster.launch)
    command = launcher.command(start).split("\n")
    if left := launcher.leaves_out(start):
        origin = f"{origin}; one agent a node: without srun_args' {', '.join(dict.fromkeys(left))}"
    return {"name": launcher.name, "command": command, "origin": origin, "meets": launcher.meets(start)}


def _profiler(plan: Plan) -> list[str]:
    """The words before a rank's command by which a profiler starts it."""
    asked = plan.training
    return list(command_of(asked.profile, gpus=plan.parallel.gpus_per_node, kernels=asked.profile_kernels))


def _scheduler(scheduler: SchedulerFacts) -> dict[str, Any]:
    """What the script must know of the scheduler: by what a job knows itself, and what is left to the script."""
    return {
        "keeps_time": scheduler.keeps_time,
        "is_this_machine": scheduler.is_this_machine,
        "first_node": scheduler.first_node,
        "has_name": bool(scheduler.variables.job_name) and not scheduler.is_this_machine,
        "job": scheduler.variables.in_bash(),
    }


@dataclass(frozen=True)
class HeaderLine:
    """A line of the script by which a scheduler is asked for the job."""

    line: str
    origin: str


@dataclass(frozen=True)
class Variable:
    """A variable of the environment, and where its value comes from."""

    name: str
    value: str
    """${NAME}, $NAME and a leading ~/ in it are expanded by the job."""
    origin: str


def variables(plan: Plan, cluster: Cluster, origins: Mapping[str, str]) -> list[Variable]:
    """The environment variables of the job, a later group winning over an earlier one."""
    site = f"cluster {cluster.name}"
    groups = [("env.common", cluster.env.common)]
    if plan.parallel.nodes == 1:
        groups.append(("env.single_node", cluster.env.single_node))
    else:
        groups.append(("env.multi_node", cluster.env.multi_node))
    if find_scheduler(plan.job.scheduler).is_this_machine:
        groups.append(("env.local", cluster.env.local))
    found: dict[str, Variable] = {}
    extensions = caches_of(cluster.name)["TORCH_EXTENSIONS_DIR"]  # the other caches are set by the worker
    found["TORCH_EXTENSIONS_DIR"] = Variable(
        "TORCH_EXTENSIONS_DIR", extensions, "hpc-llm: operators compiled for one cluster stay apart"
    )
    if plan.job.cpus_per_task is not None:
        found["OMP_NUM_THREADS"] = Variable("OMP_NUM_THREADS", str(plan.job.cpus_per_task), origins["cpus_per_task"])
    if cluster.access.internet_compute == "no":
        found["HF_HUB_OFFLINE"] = Variable("HF_HUB_OFFLINE", "1", f"{site}: access.internet_compute")
    groups.insert(0, ("access.proxy_env", cluster.access.proxy_env))
    for group, values in groups:
        for name, value in values.items():
            found[name] = Variable(name, value, f"{site}: {group}")
    for name, value in plan.job.env.items():
        check_variable(name, value)
        found[name] = Variable(name, value, origins["env"])
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
