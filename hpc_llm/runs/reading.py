"""Reading all that one run folder says, once. What is damaged counts as missing and is named."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hpc_llm.planning.experiment import flat_plan
from hpc_llm.records.agreement import agreeing
from hpc_llm.records.files import NOT_THEIRS, load_json, load_json_lines, reason_of, why_not_followed
from hpc_llm.records.metrics import is_figure
from hpc_llm.records.possible import possible
from hpc_llm.records.relations import JOB_S
from hpc_llm.records.run import HALF_EXIT, Outcome, RunPaths
from hpc_llm.runs.fields import Fields, outcome_of
from hpc_llm.runs.logged import evaluated_figures, logged_figures
from hpc_llm.runs.records import SCHEMA, SCHEMAS, Damage, ExitRecord, Failure, KeptRecord, Records, Result, StartRecord
from hpc_llm.schedulers.identity import Identity, identity_of
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.runs import read_identity, where_it_ran
from hpc_llm.text.json_text import DamagedRecordError

_T = TypeVar("_T")
_AT = RunPaths(Path())
"""The files of a run by their names within its folder: a path is made only for what is there."""
_NAMES = {
    name: os.fspath(getattr(_AT, name))
    for name in "experiment job submission exit result failures started scheduler_record kept_answer process".split()
}
_STDOUT, _STDERR, _STEPS, _EVALUATIONS, _TRIES, _CANCELLED = (
    os.fspath(path) for path in (_AT.stdout, _AT.stderr, _AT.steps, _AT.evaluations, _AT.tries, _AT.cancelled)
)
_SET_BACK_S = 3600.0
"""By no more than that a clock is set back while a job runs."""
_WHOLE, _MESSAGE, _TRACEBACK = 16, 1 << 10, 1 << 12
"""So many errors are kept whole, the earliest, and so many letters of each other one: a job may have thousands of ranks."""


def read_records(run: RunPaths) -> Records:
    """The records of `run`; never raises for what stands in its folder.

    Raises:
        OSError: the folder itself cannot be listed.
    """
    return _Reader(run).records()


def _gone_from(identity: Identity | None) -> str | None:
    """Where the folder of a scheduler's job was made, if nothing is there; what cannot be looked at may be there."""
    if identity is None or not identity.has_job or not identity.run_dir:
        return None
    try:
        os.stat(identity.run_dir)
    except (FileNotFoundError, NotADirectoryError):
        return identity.run_dir
    except (OSError, ValueError):
        pass
    return None


class _Reader:
    """Reads one folder, and notes what is wrong in it. Files are named as within the folder."""

    def __init__(self, run: RunPaths) -> None:
        self.run = run
        self.root = os.fspath(run.root)
        self.damages: list[Damage] = []
        with os.scandir(self.root) as entries:
            self.names = {entry.name for entry in entries if self._is_to_be_read(entry)}
        self.newer: str | None = None
        self.begun = self._load_begun()

    def records(self) -> Records:
        experiment = self._load("experiment") or {}
        plan = experiment.get("plan")
        if plan is not None and not isinstance(plan, dict):
            self._damaged(_NAMES["experiment"], "its plan is no object")
        flat = possible(flat_plan(plan)) if isinstance(plan, dict) else {}
        identity = self._identity()
        left = self._exit(experiment.get("run_id"))
        return Records(
            run=self.run,
            experiment=experiment,
            plan=flat,
            identity=identity,
            exit=left,
            result=self._typed("result", partial(_result, flat, partial(self._beside, flat, left))),
            failures=self._failures(),
            starts=self._starts(),
            kept=self._kept(identity),
            queue=self._load("process"),
            is_cancelled=_CANCELLED in self.names,
            has_output=_STDOUT in self.names or _STDERR in self.names,
            has_steps=self._size(_STEPS) > 0,
            has_half_exit=any(name.startswith(HALF_EXIT) for name in self.names),
            has_tries=_TRIES in self.names,
            gone_from=_gone_from(identity) if left is None else None,
            made_at=self._made_at() if identity is None else None,
            newer=self.newer,
            damages=tuple(self.damages),
        )

    def _exit(self, run_id: object) -> ExitRecord | None:
        """What the script wrote at its end; None where that is the end of another run, or before its own beginning."""
        left = self._typed("exit", _exit_record)
        named = (self._load("exit") or {}).get("run_id") if left else None
        if isinstance(named, str) and isinstance(run_id, str) and named != run_id:
            self._damaged(_NAMES["exit"], "it is of another run, and says nothing of this one")
            return None
        if left is None or left.started_at is None or left.ended_at is None or left.ended_at >= left.started_at:
            return left
        if left.started_at - left.ended_at > _SET_BACK_S:
            self._damaged(_NAMES["exit"], "it ends long before it begins, and says nothing of this run")
            return None
        self._damaged(_NAMES["exit"], "it ends before it begins: a clock was set back, or it was changed")
        return replace(left, started_at=None, ended_at=None)

    def _beside(self, plan: Mapping[str, Any], left: ExitRecord | None, result: Mapping[str, Any]) -> dict[str, Any]:
        """What other records say of the figures of a result."""
        logged = logged_figures(self.run.steps, plan, result) if _STEPS in self.names else {}
        if _EVALUATIONS in self.names:
            logged |= evaluated_figures(self.run.evaluations, result)
        return {**logged, JOB_S: left.elapsed_s if left else None}

    def _is_to_be_read(self, entry: os.DirEntry[str]) -> bool:
        """Whether it is no link that may not be followed; whose a file is that it leads to is seen as that is opened."""
        why = why_not_followed(entry.path) if entry.is_symlink() and os.path.exists(entry.path) else None
        if why is None or (why == NOT_THEIRS and not os.path.isdir(entry.path)):
            return True
        self._damaged(entry.name, why)
        return False

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
        if schema != SCHEMA and is_figure(schema) and schema > SCHEMAS.get(name, SCHEMA) and self.newer is None:
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
        if identity is None or (identity.has_job and identity.job_id is None):
            identity = read_identity(self.run)  # it looks further: the command may have died before it knew
        elif identity.has_job:
            identity = where_it_ran(identity, self.begun)
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
        found: list[Failure] = []
        for name in names:
            if name.startswith("rank-") and name.endswith(".json") and (one := self._failure(f"{folder}/{name}")):
                place = bisect_right(found, one.time, key=lambda failure: failure.time)
                found.insert(place, one if place < _WHOLE else _in_short(one))
                found[_WHOLE : _WHOLE + 1] = map(_in_short, found[_WHOLE : _WHOLE + 1])
        return tuple(found)

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

    def _starts(self) -> tuple[StartRecord, ...]:
        values = map(Fields, self.begun)
        return tuple(StartRecord(host=v.text("host"), job_id=v.text("job_id"), time=v.moment("time")) for v in values)

    def _load_begun(self) -> list[dict[str, Any]]:
        """What the script has written of its starts."""
        if _NAMES["started"] not in self.names:
            return []
        try:
            return load_json_lines(f"{self.root}/{_NAMES['started']}")
        except DamagedRecordError as error:
            self._damaged(_NAMES["started"], str(error))
            return []

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
        asked_at = values.moment("asked_at")
        since = values.moment("since")
        return (
            None
            if job is None
            else KeptRecord(record=job, asked_at=asked_at, since=asked_at if since is None else since)
        )


def _in_short(failure: Failure) -> Failure:
    """The same with the beginning of its message and the end of its traceback, where the error stands."""
    return replace(failure, message=failure.message[:_MESSAGE], traceback=failure.traceback[-_TRACEBACK:])


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
        oom_kills=values.whole("oom_kills", least=0),
    )


def _result(
    plan: Mapping[str, Any],
    beside: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    values: Fields,
    record: Mapping[str, Any],
) -> Result:
    named = record.get("outcome")
    values.look_at_figures()
    figures = possible(record)
    agreed, contradiction = agreeing(plan, figures, beside(figures))
    return Result(
        outcome=outcome_of(values.text("outcome")) if named is None or isinstance(named, str) else Outcome.UNKNOWN,
        reason=values.text("outcome_reason"),
        invalid_reason=values.text("invalid_reason"),
        values=agreed,
        contradiction=contradiction,
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
