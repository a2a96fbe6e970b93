"""What a profile names in this machine's file system: conda environments by their names, folders that must be there."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from hpc_llm.errors import RequestError
from hpc_llm.schedulers.scheduler import Objection
from hpc_llm.site.cluster import Cluster
from hpc_llm.site.profiles import where_to_change

_USUAL = ("miniconda3", "miniforge3", "mambaforge", "anaconda3", "micromamba")
_UNKNOWN = re.compile(r"\$\{?[A-Za-z_]")


def with_named_environment(cluster: Cluster, environ: Mapping[str, str]) -> Cluster:
    """The cluster with the folder in the place of a conda environment's name, which only the conda here can tell.

    Raises RequestError where there is no such environment here, or more than one.
    """
    python = cluster.prelude.python
    if python.kind != "conda" or python.env is None or "/" in python.env or python.env.startswith(("$", "~")):
        return cluster
    found = _environments(python.env, python.hook, environ)
    if len(found) != 1:
        here = "no environment of that name is" if not found else f"{len(found)} environments of that name are"
        example = str(found[0]) if found else f"/path/to/envs/{python.env}"
        raise RequestError(
            f"cluster {cluster.name}: prelude.python.env is the name '{python.env}', and {here} found here. Give its folder, "
            f"which `conda env list` shows on the cluster, as in env: {example}"
        )
    named = python.model_copy(update={"env": str(found[0])})
    return cluster.model_copy(update={"prelude": cluster.prelude.model_copy(update={"python": named})})


def _environments(name: str, hook: str, environ: Mapping[str, str]) -> list[Path]:
    """The folders of the conda environments of that name; conda itself is slow to ask."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    bases = _bases(home, hook, environ)
    if name == "base":
        candidates: Iterable[Path] = bases
    else:
        variables = (environ.get(variable, "") for variable in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS"))
        folders = [Path(part) for text in variables for part in text.split(os.pathsep) if part]
        folders += [*_of_condarc(home), *(base / "envs" for base in bases), home / ".conda" / "envs"]
        candidates = [*(folder / name for folder in folders), *_recorded(home, name)]
    found = {folder.resolve(): folder for folder in candidates if (folder / "conda-meta").is_dir()}
    return list(found.values())


def _bases(home: Path, hook: str, environ: Mapping[str, str]) -> list[Path]:
    """Where conda itself may be installed."""
    found = [home / name for name in _USUAL]
    for program in (environ.get("CONDA_EXE"), environ.get("MAMBA_EXE")):
        if program:
            found.append(Path(program).parent.parent)
    path = expanded(hook, _with_user(environ)) if hook != "auto" else None
    return [*found, Path(path).parents[2]] if path and path.endswith("/etc/profile.d/conda.sh") else found


def _of_condarc(home: Path) -> list[Path]:
    try:
        settings = yaml.safe_load((home / ".condarc").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []
    folders = settings.get("envs_dirs") if isinstance(settings, dict) else None
    known = {"HOME": str(home)}
    return [Path(expanded(str(f), known) or "") for f in folders] if isinstance(folders, list) else []


def _recorded(home: Path, name: str) -> list[Path]:
    """conda writes down each environment that it makes."""
    try:
        lines = (home / ".conda" / "environments.txt").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [Path(line) for line in lines if line and Path(line).name == name]


def expanded(text: str, environ: Mapping[str, str]) -> str | None:
    """A path of a profile as the job will have it, None where a variable has no value here."""
    home = environ.get("HOME")
    text = f"{home}{text[1:]}" if text.startswith("~/") and home else text
    text = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: environ.get(m[1] or m[2]) or m[0], text)
    return None if _UNKNOWN.search(text) else text


def missing_paths(cluster: Cluster, environ: Mapping[str, str], here: str) -> Iterator[Objection]:
    """An objection for each folder or file of the profile that is not `here`, as a login node is called, and without which the job would
    end at once."""
    python, prelude = cluster.prelude.python, cluster.prelude
    named = [("prelude.use", folder) for folder in prelude.use]
    if python.kind in ("conda", "venv") and python.env:
        named.append(("prelude.python.env", python.env))
    if python.kind == "conda" and python.hook != "auto":
        named.append(("prelude.python.hook", python.hook))
    for field, text in named:
        path = expanded(text, _with_user(environ))
        if path is not None and not os.path.exists(path):
            file = where_to_change("clusters", cluster.name)
            yield Objection(
                f"there is no {path} here, which {field} of cluster {cluster.name} names",
                f"Is this {here}? Then give {field} what there is, in {file}; --force submits all the same.",
            )


def _with_user(environ: Mapping[str, str]) -> Mapping[str, str]:
    """With USER as the job has it, which asks `id -un` where it is not set; without it where this user has no name."""
    if environ.get("USER"):
        return environ
    try:
        return {**environ, "USER": pwd.getpwuid(os.geteuid()).pw_name}
    except KeyError:
        return environ
