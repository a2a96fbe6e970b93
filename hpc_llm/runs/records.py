"""All that one run folder says of its run, read once. What is damaged counts as missing and is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from hpc_llm.run import DamagedRecordError, Outcome, RunPaths, Stop, load_json, load_json_lines, reason_of
from hpc_llm.runs.fields import Fields, is_figure, outcome_of
from hpc_llm.runs.slurm_records import JobRecord
from hpc_llm.submit.identity import Identity, identity_of
from hpc_llm.submit.runs import read_identity
from hpc_llm.submit.submission import SCHEMA as JOB_SCHEMA

SCHEMA = 1
"""Of the records of a run; one of a higher number is shown and not guessed at."""
_SCHEMAS = {"job.json": JOB_SCHEMA}
"""Of those that have been changed since."""
TOLD_TO_STOP = "SIGTERM"
"""What the worker records as the type of an error when it obeys the signal."""
_T = TypeVar("_T")
_AT = RunPaths(Path())
"""The files of a run by their names within its folder: a path is made only for what is there."""
_NAMES = {
    name: os.fspath(getattr(_AT, name))
    for name in "experiment job submission exit result failures started scheduler_record kept_answer process".split()
}
_STDOUT, _STDERR, _STEPS, _TRIES, _CANCELLED = (
    os.fspath(path) for path in (_AT.stdout, _AT.stderr, _AT.steps, _AT.tries, _AT.cancelled)
)


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

    @property
    def elapsed_s(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return round(max(0.0, self.ended_at - self.started_at), 3)

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
    """All of it, as it stands there."""


@dataclass(frozen=True, kw_only=True)
class Start:
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
    starts: tuple[Start, ...] = ()
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
    def host(self) -> str | None:
        """The machine on which the script of the last try runs or ran."""
        started = self.starts[-1].host if self.starts else None
        return (self.exit.host if self.exit else None) or started


def read_records(run: RunPaths) -> Records:
    """The records of `run`; never raises for what stands in its folder.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    return _Reader(run).records()


class _Reader:
    """Reads one folder, and notes what is wrong in it. Files are named as within the folder."""

    def __init__(self, run: RunPaths) -> None:
        self.run = run
        self.root = os.fspath(run.root)
        with os.scandir(self.root) as entries:
            self.names = {entry.name for entry in entries}
        self.damages: list[Damage] = []
        self.newer: str | None = None

    def records(self) -> Records:
        experiment = self._load("experiment") or {}
        plan = experiment.get("plan")
        if plan is not None and not isinstance(plan, dict):
            self._damaged(_NAMES["experiment"], "its plan is no object")
        identity = self._identity()
        return Records(
            run=self.run,
            experiment=experiment,
            plan=plan if isinstance(plan, dict) else {},
            identity=identity,
            exit=self._typed("exit", _exit_record),
            result=self._typed("result", _result),
            failures=self._failures(),
            starts=self._starts(),
            kept=self._kept(identity),
            queue=self._load("process"),
            is_cancelled=_CANCELLED in self.names,
            has_output=_STDOUT in self.names or _STDERR in self.names,
            has_steps=self._size(_STEPS) > 0,
            has_half_exit=any(name.startswith(".exit.json.") for name in self.names),
            has_tries=_TRIES in self.names,
            made_at=self._made_at() if identity is None else None,
            newer=self.newer,
            damages=tuple(self.damages),
        )

    def _load(self, record: str) -> dict[str, Any] | None:
        """The object in the record of that kind."""
        name = _NAMES[record]
        return self._read(name) if name.partition("/")[0] in self.names else None

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            record = load_json(f"{self.root}/{name}")
        except DamagedRecordError as error:
            self._damaged(name, str(error))
            return None
        schema = (record or {}).get("schema")
        if schema != SCHEMA and is_figure(schema) and schema > _SCHEMAS.get(name, SCHEMA) and self.newer is None:
            self.newer = f"schema {schema} of {name}"
        return record

    def _typed(self, kind: str, make: Callable[[Fields, Mapping[str, Any]], _T]) -> _T | None:
        record = self._load(kind)
        if record is None:
            return None
        values = Fields(record)
        made = make(values, record)
        for why in values.damages:
            self._damaged(_NAMES[kind], why)
        return made

    def _damaged(self, name: str, why: str) -> None:
        self.damages.append(Damage(file=name, why=why))

    def _size(self, name: str) -> int:
        if name not in self.names:
            return 0
        try:
            return os.stat(f"{self.root}/{name}").st_size
        except OSError:
            return 0

    def _made_at(self) -> float | None:
        try:
            return os.stat(self.run.experiment).st_mtime
        except OSError:
            return None

    def _identity(self) -> Identity | None:
        record = self._load("job") or self._load("submission")
        identity = None if record is None else identity_of(record)
        if identity is None or (identity.scheduler == "slurm" and identity.job_id is None):
            identity = read_identity(self.run)  # it looks further: the command may have died before it knew
        if identity is None and _NAMES["submission"] in self.names and not self.damages:
            self._damaged(_NAMES["submission"], "it names no job")
        return identity

    def _failures(self) -> tuple[Failure, ...]:
        folder = _NAMES["failures"]
        if folder not in self.names:
            return ()
        try:
            names = sorted(os.listdir(f"{self.root}/{folder}"))
        except OSError as error:
            self._damaged(folder, reason_of(error))
            return ()
        found = [self._failure(f"{folder}/{n}") for n in names if n.startswith("rank-") and n.endswith(".json")]
        return tuple(sorted(filter(None, found), key=lambda failure: failure.time))

    def _failure(self, name: str) -> Failure | None:
        record = self._read(name)
        if not record:
            return None
        values = Fields(record)
        failure = Failure(
            file=name,
            rank=values.whole("rank", least=0) or 0,
            time=values.moment("time") or 0.0,
            type=values.text("type") or "Error",
            message=values.text("message") or "",
            traceback=values.text("traceback") or "",
            host=values.text("host"),
            outcome=outcome_of(values.text("outcome") or Outcome.FAILED),
        )
        for why in values.damages:
            self._damaged(name, why)
        return failure

    def _starts(self) -> tuple[Start, ...]:
        if _NAMES["started"] not in self.names:
            return ()
        try:
            lines = map(Fields, load_json_lines(f"{self.root}/{_NAMES['started']}"))
        except DamagedRecordError as error:
            self._damaged(_NAMES["started"], str(error))
            return ()
        return tuple(Start(host=v.text("host"), job_id=v.text("job_id"), time=v.moment("time")) for v in lines)

    def _kept(self, identity: Identity | None) -> KeptRecord | None:
        record = self._load("scheduler_record")
        if record is None:
            old = self._load("kept_answer")
            record = old and {"record": old.get("record")}
        if record is None:
            return None
        values = Fields(record)
        uuid = values.text("uuid")
        if uuid and identity and identity.uuid and uuid != identity.uuid:
            return None  # of an earlier submission of the same run
        job = _job_record(values.mapping("record") or {})
        return None if job is None else KeptRecord(record=job, asked_at=values.moment("asked_at"))


def _exit_record(values: Fields, _: Mapping[str, Any]) -> ExitRecord:
    signal = values.text("signal")
    return ExitRecord(
        exit_code=values.whole("exit_code", least=0),
        signal=signal.removeprefix("SIG") if signal else None,
        stage=values.text("stage"),
        reason=values.text("reason"),
        host=values.text("host"),
        job_id=values.text("job_id"),
        array_task=values.whole("array_task", least=0),
        started_at=values.moment("started_at"),
        ended_at=values.moment("ended_at"),
        time_limit_s=values.seconds("time_limit_s"),
        restart_count=values.whole("restart_count", least=0) or 0,
    )


def _result(values: Fields, record: Mapping[str, Any]) -> Result:
    named = record.get("outcome")
    return Result(
        outcome=outcome_of(values.text("outcome")) if named is None or isinstance(named, str) else Outcome.UNKNOWN,
        reason=values.text("outcome_reason"),
        invalid_reason=values.text("invalid_reason"),
        values=record,
    )


_JOB_FIELDS = {field.name: str(field.type) for field in fields(JobRecord)}


def _job_record(record: Mapping[str, Any]) -> JobRecord | None:
    """A scheduler's record from a file; None where its state is not there, or not final."""
    values = Fields(record)
    found: dict[str, Any] = {}
    for name, kind in _JOB_FIELDS.items():
        if name.endswith("_at"):
            found[name] = values.moment(name)
        elif name == "elapsed_s":
            found[name] = values.seconds(name)
        elif kind.startswith("str"):
            found[name] = values.text(name)
        elif kind.startswith("int"):
            found[name] = values.whole(name)
        elif kind == "bool":
            found[name] = record.get(name) is True
    if not found.get("state"):
        return None
    job = JobRecord(**found)
    return None if job.is_live else job
