"""A process that can be recognised later: a pid alone may by then belong to somebody else.

psutil says who started whom. Who a process is and whether it lives is read from /proc, because psutil would lose something:
- its time of start is seconds since 1970, worked out from a boot time that moves when the clock is set; a record has to be
  compared with a process days later, so it keeps the kernel's own ticks since the boot;
- to it a zombie runs, and waiting for one that nobody collects, as in many containers, never ends;
- it knows no sessions, no boot and no namespace of process ids, without which a record of another container looks like ours.
"""

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
_MACHINE_ID = Path("/etc/machine-id")
_NO_CONTAINER = "pid:[4026531836]"
"""Linux's first namespace of process ids: that of the machine itself."""


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


def machine_id() -> str | None:
    """What stays the same while the machine restarts; None where it is not known, or where this is a container."""
    try:
        return _MACHINE_ID.read_text().strip() or None if _namespace() == _NO_CONTAINER else None
    except OSError:
        return None


def ended_with_a_restart(process: Mapping[str, Any], machine: object) -> bool:
    """Whether this very machine, known by its id, has been restarted since `process` was described."""
    here = describe_process(os.getpid())
    is_same = machine is not None and machine == machine_id()
    is_same = is_same and all(process.get(name) == here[name] for name in ("host", "pid_namespace"))
    return is_same and process.get("boot_id") not in (None, here["boot_id"])


def place_of(process: Mapping[str, Any]) -> str | None:
    """Where to look for `process`, as words of a sentence; None where that is here, or a restart has ended it."""
    here = describe_process(os.getpid())
    if process.get("host") != here["host"]:
        return str(process.get("host") or "another machine")
    in_another = process.get("pid_namespace") not in (None, here["pid_namespace"])
    return f"another container on {here['host']}" if in_another and process.get("boot_id") == here["boot_id"] else None


def hides_others() -> bool:
    """Whether a user sees no processes but their own here, as where /proc is mounted with hidepid."""
    return _stat(1) is None and _stat(os.getpid()) is not None


def can_be_seen(process: Mapping[str, Any]) -> bool:
    """Whether a look at the processes here tells for certain if it lives: hosts may share a name, and a boot ends all."""
    here = describe_process(os.getpid())
    return all(process.get(name) == here[name] for name in ("host", "boot_id", "pid_namespace"))


def is_alive(process: Mapping[str, Any]) -> bool:
    """Whether the very process that was described still runs on this host; a zombie does not."""
    now = describe_process(int(process["pid"]))
    fields = _stat(int(process["pid"]))
    return fields is not None and fields[0] not in "ZX" and all(now[key] == process.get(key) for key in now)


def session_is_alive(leader: Mapping[str, Any]) -> bool:
    """Whether the process that was described, or any other of the session that it leads, still runs on this host.

    Linux gives no pid out anew as long as it names a session, so whoever has it there is of that session.
    """
    if is_alive(leader):
        return True
    pid = int(leader["pid"])
    heir = _stat(pid)
    if heir is not None and int(heir[19]) != leader.get("start_ticks"):
        return False  # the pid is somebody else's by now
    return any(int(fields[3]) == pid and fields[0] not in "ZX" for one in process_ids() if (fields := _stat(one)))


def process_ids() -> list[int]:
    """The processes that can be seen. Raises OSError where a system has no /proc.

    Each `status` asks: importing psutil would take many times as long as looking.
    """
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def end_group(process: Mapping[str, Any], grace_s: float = 10.0) -> bool:
    """End `process`, its group and all it has started: SIGTERM, after `grace_s` seconds SIGKILL. False if it was over."""
    return end_all([process], grace_s)


def end_all(processes: Sequence[Mapping[str, Any]], grace_s: float = 10.0) -> bool:
    """The same for several at once, which share the time; False if all were over."""
    alive = [process for process in processes if is_alive(process)]
    if not alive:
        return False
    # Launchers start ranks in sessions of their own, out of the reach of a group.
    pids = dict.fromkeys(int(process["pid"]) for process in alive)
    family = [*alive, *(describe_process(pid) for pid in _descendants(pids) if pid not in pids)]
    for sign, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 2.0)):
        leaders = {pid for process in alive if is_alive(process) and _group_of(process) == (pid := int(process["pid"]))}
        for leader in leaders:
            _signal_group(leader, sign)
        for member in family:
            if is_alive(member) and _group_of(member) not in leaders:
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


def _descendants(pids: Iterable[int]) -> list[int]:
    """All that these have started, from one look: what is asked for one after the other may have moved in between."""
    import psutil

    children: dict[int, list[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process.pid)
    found: list[int] = []
    pending = [child for pid in pids for child in children.get(pid, [])]
    while pending:
        found.extend(pending)
        pending = [child for parent in pending for child in children.get(parent, [])]
    return list(dict.fromkeys(found))


def _signal_group(leader: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, which is what was wanted
        os.killpg(leader, sign)


def _signal(pid: int, sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sign)
