"""Commands that messages advise, so that they reach the runs that are meant from wherever they are pasted. Standard library only."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

_ABOUT_RUNS = re.compile(
    r"`(hpc-llm (?:status|logs|cancel|reconcile|diagnose|clean|export|report|submit [^`\n]{0,80}--resume)\b"
    r"(?![^`]*--logs)[^`\n]{0,200})`"
)


def default_logs() -> Path:
    """The folder in which a command looks for runs that is told none."""
    return Path(os.environ.get("HPC_LLM_LOGS") or "logs").expanduser()


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
    return os.path.abspath(folder.expanduser())
