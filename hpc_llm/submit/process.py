"""A process that can be recognised later: a pid alone may by then belong to somebody else."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name, which may hold spaces: state, parent, ..."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    return text.rpartition(")")[2].split()


def describe_process(pid: int) -> dict[str, Any]:
    """What identifies process `pid` until the machine restarts, as JSON types."""
    fields = _stat(pid)
    return {
        "pid": pid,
        "start_ticks": int(fields[19]) if fields else None,
        "host": socket.gethostname(),
        "boot_id": _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else None,
        "pid_namespace": _namespace(),
    }


def _namespace() -> str | None:
    """The process ids of a container are not those of its host."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def is_on_this_host(process: Mapping[str, Any]) -> bool:
    return process.get("host") == socket.gethostname()


def can_be_seen(process: Mapping[str, Any]) -> bool:
    """Whether a look at the processes here tells for certain if it lives: hosts may share a name, and a boot ends all."""
    here = describe_process(os.getpid())
    return all(process.get(name) == here[name] for name in ("host", "boot_id", "pid_namespace"))


def is_alive(process: Mapping[str, Any]) -> bool:
    """Whether the very process that was described still runs on this host; a zombie does not."""
    now = describe_process(int(process["pid"]))
    fields = _stat(int(process["pid"]))
    return fields is not None and fields[0] not in "ZX" and all(now[key] == process.get(key) for key in now)


def end_group(process: Mapping[str, Any], grace_s: float = 10.0) -> bool:
    """End `process`, its group and all it has started: SIGTERM, after `grace_s` seconds SIGKILL. False if it was over."""
    if not is_alive(process):
        return False
    leader = int(process["pid"])
    # Launchers start ranks in sessions of their own, out of the reach of the group.
    family = [process, *map(describe_process, _descendants(leader))]
    for sign, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 2.0)):
        if is_alive(process):
            _signal_group(leader, sign)
        for member in family:
            if is_alive(member) and _group_of(member) != leader:
                _signal(int(member["pid"]), sign)
        if _all_over(family, seconds):
            break
    return True


def _all_over(processes: Sequence[Mapping[str, Any]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _group_of(process: Mapping[str, Any]) -> int | None:
    fields = _stat(int(process["pid"]))
    return int(fields[2]) if fields else None


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    pending: Iterable[int] = parents.get(pid, [])
    while pending:
        found.extend(pending)
        pending = [child for parent in pending for child in parents.get(parent, [])]
    return found


def _signal_group(leader: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, which is what was wanted
        os.killpg(leader, sign)


def _signal(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
