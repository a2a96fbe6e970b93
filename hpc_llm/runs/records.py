"""What a run folder can say of its run, as types. None, or empty, is what is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpc_llm.planning.experiment import CHANGED_LETTERS, ESTIMATED_LETTERS
from hpc_llm.records.run import JOB_FILE, Outcome, RunPaths, Stop
from hpc_llm.runs.fields import Fields
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.submission import SCHEMA as JOB_SCHEMA

SCHEMA = 1
"""Of the records of a run; one of a higher number is shown and not guessed at."""
SCHEMAS = {JOB_FILE: JOB_SCHEMA}
"""Of those that have been changed since."""
TOLD_TO_STOP = "SIGTERM"
"""What the worker records as the type of an error when it obeys the signal."""


_NEAR_THE_END = "USR1"
"""What ends a script only where the request asked for it, which gives a reason: before the limit, to have time to save."""


@dataclass(frozen=True, kw_only=True)
class ExitRecord:
    """exit.json: what the job script wrote on its way out."""

    exit_code: int | None = None
    signal: str | None = None
    """Without `SIG`, as the shell names it: the signal that ended the script."""
    stage: str | None = None
    """prelude, launch or done: how far the script came."""
    reason: str | None = None
    host: str | None = None
    job_id: str | None = None
    array_task: int | None = None
    started_at: float | None = None
    """Unix time."""
    ended_at: float | None = None
    time_limit_s: float | None = None
    restart_count: int = 0
    oom_kills: int | None = None
    """Processes that the kernel of the script's node killed for lack of memory meanwhile; None where it does not count them."""

    @property
    def elapsed_s(self) -> float | None:
        """None where a clock was set back meanwhile, too: nobody knows how long it took."""
        if self.started_at is None or self.ended_at is None or self.ended_at < self.started_at:
            return None
        return round(self.ended_at - self.started_at, 3)

    @property
    def was_signalled_early(self) -> bool:
        """Whether what ended it is the signal that the request asked for, which comes before the limit."""
        return self.signal == _NEAR_THE_END and bool(self.reason)

    @property
    def hit_time_limit(self) -> bool:
        """Whether the script was told to end at about its own time limit; it starts a little after its job."""
        limit, elapsed = self.time_limit_s, self.elapsed_s
        if not self.signal or not limit or elapsed is None:
            return False
        return elapsed >= limit - min(30.0, limit / 10)

    @property
    def stop(self) -> Stop | None:
        """Why it stopped before it launched anything: a program may end with the same codes."""
        if self.stage not in (None, "prelude") or self.exit_code not in {stop.value for stop in Stop}:
            return None
        return Stop(self.exit_code)

    @property
    def ended_before_launch(self) -> bool:
        return self.stop is not None or (self.stage == "prelude" and not self.signal and self.exit_code != 0)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The error that one rank recorded."""

    file: str
    """Within the run's folder."""
    rank: int
    time: float
    """Unix time, 0 where it is not known."""
    type: str
    message: str
    traceback: str
    host: str | None
    outcome: Outcome
    """What the worker makes of it."""

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the rank was only told to end, which follows from something else."""
        return self.type == TOLD_TO_STOP


@dataclass(frozen=True, kw_only=True)
class Result:
    """result.json: what the worker measured, and how it came to its end."""

    outcome: Outcome
    reason: str | None
    invalid_reason: str | None
    values: Mapping[str, Any]
    """All of it, without figures that cannot be, or that contradict others."""
    contradiction: str | None = None
    """What in it contradicts itself or the plan."""


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """One line of started.jsonl: a try that began."""

    host: str | None
    job_id: str | None
    time: float | None


@dataclass(frozen=True, kw_only=True)
class KeptRecord:
    """What the scheduler last said of the job, once that was final."""

    record: JobRecord
    asked_at: float | None
    """Unix time; None in what version 0.1 kept."""
    since: float | None = None
    """When it said the same first."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A file of which nothing or not all can be used."""

    file: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Records:
    """What the files of a run say; None, or empty, where one is not there."""

    run: RunPaths
    experiment: Mapping[str, Any]
    plan: Mapping[str, Any]
    identity: Identity | None = None
    exit: ExitRecord | None = None
    result: Result | None = None
    failures: tuple[Failure, ...] = ()
    """The earliest first."""
    starts: tuple[StartRecord, ...] = ()
    kept: KeptRecord | None = None
    queue: Mapping[str, Any] | None = None
    """Which processes of this machine lead the local queue and the script."""
    is_cancelled: bool = False
    """Somebody asked hpc-llm to cancel it."""
    has_output: bool = False
    """It has begun, for the files of its output are there."""
    has_steps: bool = False
    has_half_exit: bool = False
    """The script began to write exit.json and could not."""
    has_tries: bool = False
    """It was queued again: what earlier tries left is kept beside these files."""
    gone_from: str | None = None
    """Where its job prints and works, and no folder is any more: this one was renamed or moved since."""
    made_at: float | None = None
    """When the folder's experiment was written, by the clock of its file system; only where nothing tells of a job."""
    newer: str | None = None
    """Names the record that a newer version wrote."""
    damages: tuple[Damage, ...] = ()

    @property
    def errors(self) -> tuple[Failure, ...]:
        """The failures without those of ranks that were only told to stop."""
        return tuple(failure for failure in self.failures if not failure.is_told_to_stop)

    @property
    def is_whole(self) -> bool:
        """Whether the measurement came to its end, which nothing that happens afterwards takes back."""
        if self.result is None:
            return False
        if self.result.outcome is Outcome.INVALID:
            return True
        return self.result.outcome is Outcome.COMPLETED and not self.failures

    @property
    def method(self) -> str | None:
        """The name of its method, with the letters of what was done where settings or the estimate made that another: `z3 as ddp`."""
        plan, origins = Fields(self.plan), self.experiment.get("origins")
        if plan.text("task") == "prepare":  # data are prepared alike for all of them
            return None
        name, letters = plan.text("method"), plan.text("letters")
        origin = origins.get("letters") if isinstance(origins, dict) else None
        if name is None or letters is None or name == letters or origin not in (CHANGED_LETTERS, ESTIMATED_LETTERS):
            return name
        return f"{name} as {letters}"

    @property
    def host(self) -> str | None:
        """The machine on which the script of the last try runs or ran."""
        started = self.starts[-1].host if self.starts else None
        return (self.exit.host if self.exit else None) or started
