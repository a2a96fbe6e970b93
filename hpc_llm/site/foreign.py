"""What a cluster's profile from the working directory, perhaps a stranger's, brings into a job: told, and some of it refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_llm.errors import ProfileError
from hpc_llm.site.code_variables import loads_code, steers_srun
from hpc_llm.site.reach import leads_elsewhere, steers_traffic
from hpc_llm.site.sbatch_options import ADDRESSEE, is_harmless
from hpc_llm.text import env_file
from hpc_llm.text.shown import one_line

_PRELUDE = ("init", "use", "load", "load_multi_node", "profilers")
_OF_THE_JOB = re.compile(r"\$\{?(?:PWD|OLDPWD|SLURM_\w*|SUBMITIT_\w*|run_dir|TMPDIR)\b")
"""Folders of the job or of whoever submits: what lies there, a stranger may have put there."""


def told(profile: Mapping[str, Any]) -> str:
    """Clauses on the code that jobs of this cluster load and on the places that they are led to; '' where there is neither."""
    code: dict[str, None] = {}
    places: dict[str, None] = {}
    for block in _blocks(profile):
        code |= dict.fromkeys(_code(block))
        places |= dict.fromkeys(_places(block))
    said = [
        ("it says what code the job loads", list(code)),
        ("it leads the job elsewhere", [p for p in places if p not in code]),
    ]
    return "".join(f"; {clause} ({one_line(', '.join(names))})" for clause, names in said if names)


def without_commands(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile without the commands that it would have people paste."""
    kept = dict(profile)
    if isinstance(account := kept.get("account"), dict):
        kept["account"] = _without(account, "list_command")
    prelude = _mapping(kept.get("prelude"))
    if isinstance(python := prelude.get("python"), dict):
        kept["prelude"] = {**prelude, "python": _without(python, "make")}
    return kept


def refuse_env_file(profile: Mapping[str, Any], path: Path, own: Path) -> None:
    """Raise a ProfileError for a file of variables that a stranger can have put there, or by which the job would load code.

    `own` is the folder of the user's configuration, which is nobody else's wherever it lies.
    """
    for block in _blocks(profile):
        name = _mapping(block.get("env")).get("file")
        if isinstance(name, str) and name:
            _refuse_place(name, path, own)
            _refuse_content(name, path)


def _refuse_place(name: str, path: Path, own: Path) -> None:
    place = Path(os.path.realpath(_expanded(name)))
    is_known = os.path.isabs(_expanded(name)) and "$" not in _expanded(name) and not _OF_THE_JOB.search(name)
    foreign = (Path.cwd().resolve(), path.parent.resolve())
    if is_known and (place.is_relative_to(own.resolve()) or not any(map(place.is_relative_to, foreign))):
        return
    why = (
        "lies in the working directory"
        if is_known
        else "is found only where the job runs, or from where it is submitted"
    )
    raise ProfileError(
        f"{path}: env.file is {name!r}, which {why}, and may be a stranger's as this profile may. Name it by --env-file, or in a "
        "profile in ~/.config/hpc-llm/clusters."
    )


def _refuse_content(name: str, path: Path) -> None:
    """What is not here yet, or not to be read, is left to the checks of submission and of the job."""
    place = _expanded(name)
    if not os.path.isfile(place):
        return
    try:
        variables = env_file.read(place)
    except (OSError, env_file.EnvFileError):
        return
    code = [variable for variable in variables if loads_code(variable)]
    if code:
        raise ProfileError(
            f"{path}: env.file is {name!r}, whose {', '.join(code)} would decide which code the job loads. Name that file by "
            "--env-file, or in a profile in ~/.config/hpc-llm/clusters."
        )


def _expanded(name: str) -> str:
    return os.path.expandvars(os.path.expanduser(name))


def _code(block: Mapping[str, Any]) -> Iterator[str]:
    prelude = _mapping(block.get("prelude"))
    python = _mapping(prelude.get("python"))
    yield from (f"prelude.{key}" for key in _PRELUDE if prelude.get(key))
    yield from (f"prelude.python.{key}" for key in ("env", "hook") if python.get(key))
    yield from (name for name, _ in _variables(block) if loads_code(name))
    for key, value in _mapping(block.get("launch")).items():
        if value and str(key).endswith("_args"):
            yield f"launch.{key}"
    for name, value in _options(block):
        if name.removeprefix("--") != ADDRESSEE and not is_harmless(name.removeprefix("--"), value):
            yield f"request.extra {name}"


def _options(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for option in _list(_mapping(block.get("request")).get("extra")):
        name, _, value = str(option).partition("=")
        yield name.strip(), value.strip()


def _places(block: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"models {folder}" for folder in _list(block.get("models")))
    if (name := _mapping(block.get("env")).get("file")) is not None:
        yield f"env.file {name}"
    if _mapping(block.get("request")).get("export") == "all":
        yield "request.export all, your shell's variables"
    if suffix := _mapping(block.get("launch")).get("master_addr_suffix"):
        yield f"launch.master_addr_suffix {suffix}"
    yield from (f"mail to {value}" for name, value in _options(block) if name.removeprefix("--") == ADDRESSEE)
    for name, value in _variables(block):
        if leads_elsewhere(name, value) or steers_traffic(name) or steers_srun(name):
            yield name


def _variables(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Variables that the job sets, with their values; folders of the job alone lead nowhere else."""
    groups = [group for key, group in _mapping(block.get("env")).items() if key != "per_job_dirs"]
    for group in (*groups, _mapping(block.get("access")).get("proxy_env")):
        yield from ((str(name), str(value)) for name, value in _mapping(group).items())
    yield from ((str(name), "") for name in _mapping(_mapping(block.get("env")).get("per_job_dirs")))


def _blocks(profile: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cluster's facts and those of each partition."""
    return [profile, *(one for one in _list(profile.get("partitions")) if isinstance(one, dict))]


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
