"""Calls of Slurm's own commands, in an environment that does not change what they do or print."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hpc_llm.schedulers.environment import without_slurm

TIMEOUT_S = 60.0
"""A controller that hangs keeps its clients waiting for many times its own MessageTimeout."""
_CLUSTER_NAME = re.compile(r"^[ \t]*ClusterName\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")

_NOT_SET_UP = re.compile(r"Could not establish a configuration source|DNS SRV lookup failed|_dns_srv: ")

_known: dict[str, str] = {}
"""Names by the SLURM_CONF of the environment: a cluster keeps its own while this process lives."""
_silent: set[str] = set()
"""Those whose controller gave no answer: who hangs is not waited for again and again."""


def call(command: Sequence[str]) -> tuple[str | None, str]:
    """Stdout, or None when the command failed; and what it printed to stderr, or what can be said of a silent failure."""
    # Without the limit long array expressions end in "...", which would lose tasks.
    environ = {**without_slurm(os.environ), "SLURM_BITSTR_LEN": "0"}
    try:
        done = subprocess.run(
            command,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError:
        return None, f"{command[0]} is not on PATH"
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} gave no answer in {TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return done.stdout, done.stderr.strip()
    if _NOT_SET_UP.search(done.stderr):  # what else it prints tells how it looked for one
        return None, f"{command[0]} finds no configuration of Slurm on this machine"
    return None, done.stderr.strip() or f"{command[0]} ended with exit code {done.returncode} and without a word"


def cluster_name() -> str | None:
    """Slurm's own name of the cluster that commands here talk to; None where there is none or nothing tells."""
    place = os.environ.get("SLURM_CONF", "")
    if place not in _known:
        told, _ = call(["scontrol", "show", "config"])
        if told is None:
            _silent.add(place)
        found = _CLUSTER_NAME.search(told or "") or _in_configuration(place)
        if found is None:
            return None
        _known[place] = found.group(1)
    return _known[place]


def is_answering() -> bool:
    """Whether the controller answered when it was asked for the cluster's name."""
    return cluster_name() is not None and os.environ.get("SLURM_CONF", "") not in _silent


def _in_configuration(place: str) -> re.Match[str] | None:
    """The name in slurm.conf: the controller may be down, and which cluster it is of can be told all the same."""
    for path in (place, *_CONFIGURATIONS) if place else _CONFIGURATIONS:
        try:
            found = _CLUSTER_NAME.search(Path(path).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if found is not None:
            return found
    return None
