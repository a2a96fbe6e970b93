"""What a run's own folder says about how it ended, read once."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpc_llm.run import Outcome, RunPaths, Stop, read_json
from hpc_llm.runs.progress import last_text
from hpc_llm.submit.identity import Identity
from hpc_llm.submit.runs import read_identity

_MEMORY_WORDS = ("oom-kill", "oom_kill", "exceeded memory limit", "out-of-memory", "Out Of Memory")
_TASK_ENDED = re.compile(r"^srun: error: (?P<node>\S+): (?P<how>tasks? [\d,-]+: .+)$", re.MULTILINE)
_IN_EXIT: dict[str, type | tuple[type, ...]] = {
    "exit_code": int, "signal": str, "stage": str, "reason": str, "host": str,
    "started_at": (int, float), "ended_at": (int, float), "time_limit_s": (int, float),
}  # fmt: skip
_TOLD_TO_STOP = "SIGTERM"
"""What the worker records as the type of an error when it obeys the signal."""
_LONGEST_REASON = 300


@dataclass(frozen=True)
class Evidence:
    """The records in one run folder; each is None while it is not there."""

    run: RunPaths

    @cached_property
    def plan(self) -> dict[str, Any]:
        plan = (read_json(self.run.experiment) or {}).get("plan")
        return plan if isinstance(plan, dict) else {}

    @cached_property
    def identity(self) -> Identity | None:
        return read_identity(self.run)

    @cached_property
    def exit(self) -> dict[str, Any] | None:
        """The script's record of its end; what is of a wrong type, because somebody edited it, counts as missing."""
        record = read_json(self.run.exit)
        return record and {
            name: value for name, value in record.items() if isinstance(value, _IN_EXIT.get(name, object))
        }

    @cached_property
    def result(self) -> dict[str, Any] | None:
        return read_json(self.run.result)

    @cached_property
    def process(self) -> dict[str, Any] | None:
        """Who runs it, if this machine does."""
        return read_json(self.run.process)

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        return self.run.failure_records()

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The failures without those of ranks that were only told to stop: these follow from something else."""
        return [failure for failure in self.failures if failure.get("type") != _TOLD_TO_STOP]

    @property
    def is_cancelled(self) -> bool:
        return self.run.cancelled.exists()

    @property
    def exit_code(self) -> int | None:
        return self.exit.get("exit_code") if self.exit else None

    @property
    def is_device_oom(self) -> bool:
        outcomes = [failure.get("outcome") for failure in self.failures]
        return Outcome.OOM_DEVICE in [*outcomes, (self.result or {}).get("outcome")]

    @property
    def is_host_oom(self) -> bool:
        """Whether slurmstepd wrote that it killed for memory; some sites' accounting does not keep it."""
        lines = (last_text(self.run.stderr) + last_text(self.run.stdout)).splitlines()
        return any("slurmstepd" in line and any(word in line for word in _MEMORY_WORDS) for line in lines)

    @property
    def first_task_to_end(self) -> str | None:
        """What srun says of the task that failed first; those after it were ended for it."""
        if (self.exit or {}).get("restart_count"):
            return None  # srun gives no time, so its words may be of an earlier try
        said = _TASK_ENDED.search(last_text(self.run.stderr))
        return f"{said['how']} ({said['node']})" if said else None

    @property
    def prelude_stop(self) -> str | None:
        """Why the script stopped before training, if it did."""
        if self.exit is None or self.exit_code == 0:
            return None
        if self.exit_code in {stop.value for stop in Stop}:
            return self.exit.get("reason") or Stop(self.exit_code).meaning
        return self.exit.get("reason") if self.exit.get("stage") == "prelude" and not self.exit.get("signal") else None

    @property
    def hit_time_limit(self) -> bool:
        """Whether the script was ended at about its own time limit."""
        ended = self.exit or {}
        limit, start, end = ended.get("time_limit_s"), ended.get("started_at"), ended.get("ended_at")
        if not (ended.get("signal") and limit and start and end):
            return False
        return bool(end - start >= limit - min(30.0, limit / 10))  # the script starts a little after its job

    def failure_reason(self) -> str:
        """The best single line on a failure: the first rank's error, else the exit."""
        if self.errors:
            first = self.errors[0]
            return _one_line(f"rank {first.get('rank')}: {first.get('type')}: {first.get('message')}")
        result_reason = (self.result or {}).get("outcome_reason")
        if result_reason and not self.failures:
            return _one_line(str(result_reason))
        if self.exit is None:
            return "the script left no record of its end"
        if self.first_task_to_end and not self.exit.get("signal"):
            return self.first_task_to_end
        if self.exit.get("signal"):
            return f"ended by SIG{str(self.exit['signal']).removeprefix('SIG')}"
        return str(self.exit.get("reason") or f"exit code {self.exit_code}{_signal_in(self.exit_code or 0)}")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_REASON]


def _signal_in(exit_code: int) -> str:
    """What a shell means by an exit code above 128.

    >>> _signal_in(137)
    ': a process was ended by SIGKILL'
    >>> _signal_in(1)
    ''
    """
    try:
        return f": a process was ended by {signal.Signals(exit_code - 128).name}"
    except ValueError:
        return ""
