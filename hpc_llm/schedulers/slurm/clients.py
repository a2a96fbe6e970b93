"""Calls of Slurm's own commands, in an environment that does not change what they do or print."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpc_llm.errors import notice
from hpc_llm.schedulers.environment import without_slurm
from hpc_llm.text.secrecy import redacted

TIMEOUT_S = 60.0
"""A controller that hangs keeps its clients waiting for many times its own MessageTimeout."""
_PATIENCE_S = 5.0
"""So long nobody wonders."""
_MOST_BYTES = 1 << 28
"""Of what it prints: a quarter of a million jobs."""
_MOST_SAID = 4096
"""Of what it complains about."""
_PIECE = 1 << 16
_CLUSTER_NAME = re.compile(r"^[ \t]*ClusterName\s*=\s*(\S+)", re.MULTILINE | re.IGNORECASE)
_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")

_NOT_SET_UP = re.compile(r"Could not establish a configuration source|DNS SRV lookup failed|_dns_srv: ")

_told: set[str] = set()
"""Commands of which was told that they take long."""
_known: dict[str, str] = {}
"""Names by the SLURM_CONF of the environment: a cluster keeps its own while this process lives."""
_silent: set[str] = set()
"""Those whose controller gave no answer: who hangs is not waited for again and again."""


def call(command: Sequence[str]) -> tuple[str | None, str]:
    """Stdout, or None when the command failed; and what it printed to stderr, or what can be said of a silent failure."""
    # Without the limit long array expressions end in "...", which would lose tasks.
    environ = {**without_slurm(os.environ), "SLURM_BITSTR_LEN": "0"}
    try:
        code, out, err = _run(command, environ)
    except FileNotFoundError:
        return None, f"{command[0]} is not on PATH"
    except OSError as error:
        return None, f"{command[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"{command[0]} gave no answer in {TIMEOUT_S:.0f} s"
    except _TooMuch:
        return None, f"{command[0]} prints without end"
    err = redacted(err[:_MOST_SAID])  # a site's own program may stand in place of Slurm's, and print whatever it knows
    if code == 0:
        return out, err
    if _NOT_SET_UP.search(err):  # what else it prints tells how it looked for one
        return None, f"{command[0]} finds no configuration of Slurm on this machine"
    return None, err or f"{command[0]} ended with exit code {code} and without a word"


def _run(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, in bounded memory. Raises OSError, TimeoutExpired or _TooMuch."""
    read: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    deadline = time.monotonic() + TIMEOUT_S
    with (
        subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        selectors.DefaultSelector() as ready,
    ):
        try:
            for name, pipe in (("out", process.stdout), ("err", process.stderr)):
                if pipe is not None:
                    ready.register(pipe, selectors.EVENT_READ, name)
            while ready.get_map():
                for key, _ in _readable(ready, command, deadline):
                    part = os.read(key.fd, _PIECE)
                    if key.data == "out" or len(read["err"]) < _MOST_SAID:
                        read[key.data] += part
                    if not part:
                        ready.unregister(key.fileobj)
                    if len(read[key.data]) > _MOST_BYTES:
                        raise _TooMuch
            code = process.wait(_left(command, deadline))
        except BaseException:
            process.kill()
            raise
    out, err = (bytes(one).decode("utf-8", "surrogateescape") for one in read.values())
    return code, out.replace("\r\n", "\n"), err.strip()


def _readable(
    ready: selectors.BaseSelector, command: Sequence[str], deadline: float
) -> list[tuple[selectors.SelectorKey, int]]:
    """What can be read by now; who waits for a command is told once that it is waited for."""
    found = ready.select(min(_left(command, deadline), _PATIENCE_S))
    if not found and command[0] not in _told:
        _told.add(command[0])
        notice(f"{command[0]} has not answered for {_PATIENCE_S:.0f} s: it is waited for, {TIMEOUT_S:.0f} s at most")
    return found


def _left(command: Sequence[str], deadline: float) -> float:
    """Seconds until `deadline`. Raises TimeoutExpired where it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise subprocess.TimeoutExpired(command, TIMEOUT_S)
    return left


class _TooMuch(Exception):
    """A command printed more than any list of jobs has."""


def cluster_name() -> str | None:
    """Slurm's own name of the cluster that commands here talk to; None where there is none or nothing tells."""
    place = os.environ.get("SLURM_CONF", "")
    if place not in _known:
        told, _ = call(["scontrol", "show", "config"])
        own = _CLUSTER_NAME.search(told or "")
        if own is None:  # whatever it printed, the controller has not answered
            _silent.add(place)
        found = own or _in_configuration(place)
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
