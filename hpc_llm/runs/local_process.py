"""What the processes of a run do that this machine, or another one without a scheduler, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpc_llm.runs.records import Records
from hpc_llm.submit.process import is_alive, is_on_this_host


@dataclass(frozen=True, kw_only=True)
class LocalState:
    """PENDING or RUNNING, or gone."""

    state: str = "UNKNOWN"
    reason: str | None = None
    is_gone: bool = False


def local_state(records: Records) -> LocalState:
    """Look at the processes that lead the run's script and its queue."""
    marks = records.queue or {}
    script = _process(marks.get("script"))
    if script is not None:
        return _of_script(script)
    leaders = [p for p in (_process(marks.get("queue")), records.identity and records.identity.process) if p]
    if records.is_cancelled:
        return LocalState(is_gone=True, reason="before it started")
    if not any(is_on_this_host(leader) for leader in leaders):
        return LocalState(state="PENDING", reason=_elsewhere(leaders))
    if any(is_alive(leader) for leader in leaders if is_on_this_host(leader)):
        return LocalState(state="PENDING", reason="is about to start, or waits for the run before it")
    return LocalState(is_gone=True, reason="the process that was to start it is gone")


def _of_script(script: Mapping[str, Any]) -> LocalState:
    if not is_on_this_host(script):
        return LocalState(state="RUNNING", reason=_elsewhere([script]))
    if is_alive(script):
        return LocalState(state="RUNNING")
    return LocalState(is_gone=True, reason=f"process {script['pid']} is gone and left no record")


def _process(value: Any) -> Mapping[str, Any] | None:
    """A description of a process, unless it is damaged."""
    return value if isinstance(value, Mapping) and isinstance(value.get("pid"), int) else None


def _elsewhere(processes: Sequence[Mapping[str, Any]]) -> str:
    hosts = sorted({str(process.get("host")) for process in processes})
    return f"as last seen; it belongs to {', '.join(hosts) or 'another machine'}, look from there"
