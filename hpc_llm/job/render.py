"""Plan -> Script: the batch script, byte for byte what is submitted. Pure, but for reading the templates.

A name that is missing stops the rendering; every string of a user or a profile goes through a filter that makes it one
shell word. A template marks where a line comes from with `from(...)`; the marks
are taken out of the text and kept beside it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpc_llm import __version__
from hpc_llm.errors import PlanError, RequestError
from hpc_llm.job.templating import render_template
from hpc_llm.plan import tasks
from hpc_llm.plan.experiment import Plan, PlanWithOrigins
from hpc_llm.plan.slurm_request import slurm_tasks_per_node
from hpc_llm.plan.synthetic import DESCRIPTION
from hpc_llm.records.run import TRY_FILES, RunPaths, Stop
from hpc_llm.site.cluster import Cluster, check_variable
from hpc_llm.site.sbatch_options import asks_for_gpus, rivals
from hpc_llm.site.slurm_time import format_time

WIDTH = 100
"""Columns of what is printed for reading."""
_OWN_WORDS = ("template", "default")
"""Origins that tell nothing."""
_MARK = "\x1f"
_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_START = Path(__file__).with_name("start.py")
"""What each rank runs first; the script holds it without its docstring."""


@dataclass(frozen=True)
class Script:
    """A batch script and, for each of its lines, where it comes from."""

    text: str
    origins: tuple[str, ...]

    def explained(self) -> str:
        """The script with each line's origin at its right, for reading, not for running."""
        lines = zip(self.text.removesuffix("\n").split("\n"), self.origins, strict=True)
        shown = (row for line, origin in lines for row in arrow(line, "" if origin in _OWN_WORDS else origin))
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
    parallel: int | None = None
    """Most tasks at a time."""


@dataclass(frozen=True)
class Place:
    """Where a run will live, decided by the caller."""

    run_dir: Path
    code_archive: Path
    """The training program (see `schedulers.snapshot`)."""
    code_digest: str
    """SHA-256 of that archive."""
    python: Path
    """The interpreter that runs hpc-llm, used where a profile says `python.kind: current`."""
    templates: Path | None = None
    """Folder of templates that win over the bundled ones; None: nobody named one."""


def render(planned: PlanWithOrigins, cluster: Cluster, place: Place, array: JobArray | None = None) -> Script:
    """The script of one run, or of an array of runs that share everything but their folder."""
    plan, origins = planned.plan, planned.origins
    is_slurm = plan.scheduler == "slurm"
    cluster = cluster.on(cluster.partition(plan.partition))
    marked = render_template(
        {
            "plan": plan.to_dict(),
            "cluster": cluster.model_dump(mode="json"),
            "origins": dict(origins),
            "site": f"cluster {cluster.name}",
            "header": [asdict(line) for line in header(planned, cluster, place, array)] if is_slurm else [],
            "array": array and {"folder": str(array.folder), "tasks": list(array.tasks)},
            "run_dir": str(place.run_dir),
            "code_archive": str(place.code_archive),
            "code_digest": place.code_digest,
            "start": _START.read_text(encoding="utf-8").partition('"""\n\n')[2].strip(),
            "packages": list(tasks.required_packages([plan]) if array is None else array.packages),
            "python_folder": str(place.python.parent),
            "env_file": plan.env_file and _env_file(plan.env_file, cluster),
            "job_dirs": cluster.env.per_job_dirs,
            "variables": [asdict(variable) for variable in variables(plan, cluster, origins)],
            "try_files": list(TRY_FILES),
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


def shell_word(value: Any) -> str:
    """`value` as one word of bash, on one line, in which nothing is expanded.

    >>> print(shell_word("it's"), shell_word("two\\nlines"))
    'it'"'"'s' $'two\\nlines'
    """
    text = _carried(str(value))
    if not _CONTROL.search(text):
        return shlex.quote(text)
    # One line of the script per value: readable, and no terminal that shows the script obeys what is in it.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "$'" + _CONTROL.sub(lambda match: f"\\{ord(match.group()):03o}", escaped) + "'"


def sbatch_word(value: str) -> str:
    """`value` as one word of an #SBATCH line, which sbatch reads by rules of its own.

    A backslash escapes there even between single quotes, unlike in a shell.
    """
    text = _carried(value)
    if _CONTROL.search(text):
        raise RequestError(f"{text!r} holds a control character, which would break a #SBATCH line.")
    return shlex.quote(text).replace("\\", "\\\\")


def _carried(text: str) -> str:
    """`text`, refused where no script can carry it."""
    if "\0" in text or not _is_encodable(text):
        raise RequestError(f"{text!r} holds a character that a script cannot carry. Write it in UTF-8, without NUL.")
    return text


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shell_expand(value: Any) -> str:
    """`value` as one shell word in which ${NAME} and $NAME and a leading ~/ are expanded and nothing else is.

    >>> print(shell_expand("/work/${USER}/a b"))
    /work/"${USER}"'/a b'
    """
    text = str(value)
    text = "${HOME}" + text[1:] if text.startswith("~/") else text
    parts, start = [], 0
    for match in _VARIABLE.finditer(text):
        parts.append(text[start : match.start()])
        parts.append(f'"${{{match.group(1) or match.group(2)}}}"')
        start = match.end()
    parts.append(text[start:])
    return "".join(p if i % 2 else shell_word(p) if p else "" for i, p in enumerate(parts)) or "''"


def shell_comment(value: Any) -> str:
    """`value` on one line, fit for a comment."""
    return "".join(c if c.isprintable() else " " for c in str(value))


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
    flags: dict[str, tuple[str | None, str]] = {"job-name": (plan.job_name, origins["job_name"])}
    if plan.account is not None:
        flags["account"] = (plan.account, origins["account"])
    if plan.partition is not None:
        flags["partition"] = (plan.partition, origins["partition"])
    flags["nodes"] = (str(plan.nodes), origins["nodes"])
    per_launcher = slurm_tasks_per_node(plan.launcher, plan.tasks_per_node)
    flags["ntasks-per-node"] = (str(per_launcher), origins["tasks_per_node"])
    if plan.cpus_per_task is not None:
        cores = plan.cpus_per_task * plan.tasks_per_node // per_launcher
        flags["cpus-per-task"] = (str(cores), origins["cpus_per_task"])
    flags.update(_gpu_flags(plan, cluster, per_launcher))
    if plan.mem is not None:
        flags[cluster.request.memory] = (plan.mem, origins["mem"])
    if plan.time_s is not None:
        flags["time"] = (format_time(plan.time_s), origins["time_s"])
    if cluster.request.constraint:
        flags["constraint"] = (cluster.request.constraint, f"{site}: request.constraint")
    if cluster.request.exclusive:
        flags["exclusive"] = (None, f"{site}: request.exclusive")
    for options, origin in ((cluster.extra_options, f"{site}: request.extra"), (plan.sbatch, origins["sbatch"])):
        for name, value in options.items():
            _add_flag(flags, name, value, origin)
    flags.update(_output_flags(place, cluster, array))
    for name in cluster.request.forbid:
        if name in flags:
            raise PlanError(f"cluster {cluster.name} refuses --{name}, which {flags[name][1]} asks for.")
    return flags


def _add_flag(flags: dict[str, tuple[str | None, str]], name: str, value: str, origin: str) -> None:
    """Put a flag in the place of what it excludes; only --gres holds several things, the GPUs first."""
    for other in rivals(name):
        flags.pop(other, None)
    before = flags[name][0] if name == "gres" and name in flags else None
    if before is not None and asks_for_gpus(name, before) and not asks_for_gpus(name, value):
        value = f"{before},{value}"
    flags[name] = (value or None, origin)


def _gpu_flags(plan: Plan, cluster: Cluster, tasks_per_node: int) -> dict[str, tuple[str | None, str]]:
    style, count = cluster.request.gpu_style, plan.gpus_per_node
    if style == "none" or count == 0:
        return {}
    kind = f"{cluster.request.gpu_type}:" if cluster.request.gpu_type else ""
    values = {
        "gres": f"gpu:{kind}{count}",
        "gpus-per-node": f"{kind}{count}",
        "gpus": f"{kind}{count * plan.nodes}",
        "gpus-per-task": f"{kind}{max(count // tasks_per_node, 1)}",
    }
    return {style: (values[style], f"cluster {cluster.name}: request.gpu_style")}


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
    if plan.nodes == 1:
        groups.append(("env.single_node", cluster.env.single_node))
    else:
        groups.append(("env.multi_node", cluster.env.multi_node))
    if plan.scheduler == "local":
        groups.append(("env.local", cluster.env.local))
    found = {"PYTHONUNBUFFERED": Variable("PYTHONUNBUFFERED", "1", "hpc-llm: logs appear as they are written", False)}
    extensions = f"${{HOME}}/.cache/hpc-llm/{cluster.name}/torch_extensions"
    found["TORCH_EXTENSIONS_DIR"] = Variable(
        "TORCH_EXTENSIONS_DIR", extensions, "hpc-llm: operators compiled for one cluster stay apart", True
    )
    if plan.cpus_per_task is not None:
        found["OMP_NUM_THREADS"] = Variable("OMP_NUM_THREADS", str(plan.cpus_per_task), origins["cpus_per_task"], False)
    if cluster.access.internet_compute == "no":
        found["HF_HUB_OFFLINE"] = Variable("HF_HUB_OFFLINE", "1", f"{site}: access.internet_compute", False)
    groups.insert(0, ("access.proxy_env", cluster.access.proxy_env))
    for group, values in groups:
        for name, value in values.items():
            found[name] = Variable(name, value, f"{site}: {group}", True)
    for name, value in plan.env.items():
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
