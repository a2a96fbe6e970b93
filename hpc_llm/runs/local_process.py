"""What the processes of a run do that this machine, or another one without a scheduler, runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.records.run import RunPaths
from hpc_llm.runs.records import Records
from hpc_llm.schedulers.local.marks import Living, Marked
from hpc_llm.schedulers.process import hides_others, is_alive, place_of
from hpc_llm.schedulers.runs import original_of

NEXT = "about to start, or behind an earlier run"
"""Of one run that waits, or of several."""


@dataclass(frozen=True, kw_only=True)
class LocalState:
    """PENDING, RUNNING or ENDING, or gone."""

    state: str = "UNKNOWN"
    reason: str | None = None
    remedy: str | None = None
    is_gone: bool = False


def local_state(records: Records, here: Living) -> LocalState:
    """What the processes do that carry the run's marks; only where there are none, those that its files name."""
    identity = records.identity
    is_original = identity is not None and original_of(records.run, identity) is None
    uuid, name = (identity.uuid, identity.name_of(records.run.run_id)) if identity and is_original else (None, "")
    marks = records.queue or {}
    queue, script = process_in(marks, "queue"), process_in(marks, "script")
    has_queue = here.queue_of(uuid) is not None or (queue is not None and is_alive(queue))
    running = here.of_run(uuid, name)
    if running:
        return _of_processes(running, script, has_queue)
    if script is not None:
        return _of_script(script, has_queue, _place(records, script), records.run)
    if records.is_cancelled:
        return LocalState(is_gone=True, reason="before it started")
    queues = [one for one in (queue, identity and identity.process) if one]
    leaders = queues or [one for one in (identity and identity.submitter,) if one]
    if has_queue and uuid and records.has_output and records.run.start_mark(uuid).exists() and _is_full(records.run):
        return _unwritten(records.run)  # not even whom it had started could be written
    if has_queue or any(is_alive(leader) for leader in leaders):
        return LocalState(state="PENDING", reason=NEXT)
    elsewhere = [place for leader in leaders if (place := _place(records, leader)) is not None]
    if len(elsewhere) == len(leaders):
        return LocalState(state="PENDING", reason=_as_last_seen(elsewhere or ["another machine"]))
    can_be_repeated = queues and not records.has_output and not records.starts
    advice = ": `hpc-llm reconcile` submits it again" if can_be_repeated else ""
    return LocalState(is_gone=True, reason=f"the process that was to start it is gone{advice}")


def process_in(marks: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The process that process.json describes as `queue` or `script`; None where it does not, or is damaged."""
    value = marks.get(name)
    return value if isinstance(value, Mapping) and isinstance(value.get("pid"), int) else None


def _of_processes(running: Sequence[Marked], script: Mapping[str, Any] | None, has_queue: bool) -> LocalState:
    if running[0].is_script or script is None or is_alive(script):
        return LocalState(state="RUNNING")
    if has_queue:
        return LocalState(state="ENDING", reason="its script has ended, and what that has started is being ended")
    return LocalState(
        state="RUNNING", reason=f"its script is gone, and process {running[0].pid}, which that has started, goes on"
    )


def _place(records: Records, process: Mapping[str, Any]) -> str | None:
    """Where to look for a process; None where nobody sees more of it than can be seen here."""
    place = place_of(process)
    if place is not None or is_alive(process) or not hides_others():
        return place
    return "another user, whose processes are hidden here" if _is_of_another_user(records.run) else None


def _is_of_another_user(run: RunPaths) -> bool:
    try:
        return run.root.stat().st_uid != os.getuid()
    except OSError:
        return False


def _of_script(script: Mapping[str, Any], has_queue: bool, place: str | None, run: RunPaths) -> LocalState:
    if place is not None:
        return LocalState(state="RUNNING", reason=_as_last_seen([place]))
    if is_alive(script):
        return LocalState(state="RUNNING")
    if has_queue and _is_full(run):
        return _unwritten(run)
    if has_queue:
        return LocalState(state="ENDING", reason="its script has ended, and its queue has not written how")
    return LocalState(is_gone=True, reason=f"process {script['pid']} is gone and left no record")


def _unwritten(run: RunPaths) -> LocalState:
    return LocalState(
        state="ENDING",
        reason=f"its script has ended, and the file system of {run.root} is full: its queue cannot write how",
        remedy="make room on it, and how the run ended is written down then: `hpc-llm clean` shows what runs keep",
    )


def _is_full(run: RunPaths) -> bool:
    """Whether its file system has not a block left, or no file can be made on it."""
    try:
        found = os.statvfs(run.root)
    except OSError:
        return False
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)


def _as_last_seen(places: Sequence[str]) -> str:
    return f"as last seen; it belongs to {', '.join(sorted(set(places)))}, look from there"
