"""What is pasted: commands that messages advise, which have to reach the runs that are meant from wherever that is done, and
addresses of the web where a path is wanted. Standard library only."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from hpc_llm.errors import RequestError
from hpc_llm.text.homes import from_home
from hpc_llm.text.late_pattern import late_pattern

_ABOUT_RUNS = late_pattern(
    r"`(hpc-llm (?:status|logs|cancel|reconcile|diagnose|clean|export|report|submit [^`\n]{0,80}--resume)\b"
    r"(?![^`]*--logs)[^`\n]{0,200})`"
)


_ADDRESS = late_pattern(
    r"(?:https?|ftp|file|git|ssh|hf|s3|gs|az|abfss?|wandb):/{1,3}[^/]|(?:huggingface\.co|hf\.co|modelscope\.cn)/[^/]"
)
_OF_THE_HUB = late_pattern(
    r"(?:(?:https?:/+)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com)|hf:/)/+"
    r"((?:datasets/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})(?:/(?:tree|blob|resolve)/.*)?/?"
)


def refuse_link_by_default(output: str | os.PathLike[str], default: str | os.PathLike[str]) -> None:
    """Raise RequestError where the folder that is written to, when nobody names one, is a link: a checkout may have brought it."""
    if os.fspath(output) == os.fspath(default) and os.path.islink(output):
        raise RequestError(
            f"{os.fspath(output)} is a link here, and leads to {os.readlink(output)}: name the folder that you want by -o DIR."
        )


def refuse_address(said: str, text: str) -> None:
    """Raise RequestError where `text` is an address of the web: as a path it would mean a folder called `https:`.

    `said` is what stands before it in a message, as `--model`.
    """
    if not _ADDRESS.match(text) or os.path.lexists(text):
        return
    address = re.sub(r"^(?!file)(\w+):/+", r"\1://", text)  # a path has one slash in place of several
    found = _OF_THE_HUB.fullmatch(text)
    way = (
        f"`hpc-llm fetch {found[1]} --to DIR` brings it from the Hub, then give DIR"
        if found
        else f"Give /{text.removeprefix('file:').lstrip('/')}"
        if text.startswith("file:")
        else "Give a path of this machine"
    )
    place = f"{said} {address}" if said else address
    raise RequestError(f"{place}: that is an address of the web, and a path is needed. {way}.")


def refuse_file(said: str, folder: Path) -> None:
    """Raise RequestError where the folder of the runs is a file, or would lie in one; `said` is what named it, as `--logs`."""
    if folder.is_dir():
        return
    way = (folder, *folder.parents)
    file = next((one for one in way if os.path.lexists(one)), None)
    if file is None or os.path.isdir(file):
        return
    where = "it is a file" if file == folder else f"{file} is a file"
    raise RequestError(f"{said} {folder}: {where}, the folder that holds the runs is needed.")


def default_logs() -> Path:
    """The folder in which a command looks for runs that is told none."""
    return from_home(os.environ.get("HPC_LLM_LOGS") or "logs")


def with_logs(text: str, logs: Path) -> str:
    """`text`, in which the commands about runs that stand in backquotes name the folder `logs`, from its root.

    >>> with_logs("see `hpc-llm status r`", Path("/my runs"))
    "see `hpc-llm status r --logs '/my runs'`"
    """
    folder = shlex.quote(_from_root(logs))
    return _ABOUT_RUNS.sub(lambda found: f"`{found[1]} --logs {folder}`", text)


def for_runs_in(logs: Path, text: str) -> str:
    """The same, unless `logs` is where commands look anyhow."""
    is_default = _from_root(logs) == _from_root(default_logs())
    return text if is_default or "`hpc-llm " not in text else with_logs(text, logs)


def _from_root(folder: Path) -> str:
    return os.path.abspath(from_home(folder))
