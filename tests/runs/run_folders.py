"""Run folders with any records in them, and a scheduler that answers what it is told to."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.answer import Answer
from hpc_llm.schedulers.asking import Answers
from hpc_llm.schedulers.identity import Identity
from hpc_llm.schedulers.job_record import JobRecord

UUID = "8d0d1a3e-5a3c-4b0a-9a0e-1c2d3e4f5a6b"
NOW = 1_790_000_000.0
"""The time of the look, Unix time."""
BEGAN, ENDED = NOW - 7200.0, NOW - 3600.0
"""Of the job, as far as a test does not say otherwise."""


@cache
def _plan() -> dict[str, Any]:
    return {
        "task": "pretrain", "cluster": "here", "method": "z3", "model": "tiny", "steps": 100, "warmup_steps": 2,
        "nodes": 1, "world_size": 2, "micro_batch_size": 1, "gradient_accumulation_steps": 1, "global_batch_size": 2,
        "sequence_length": 64, "precision": "bf16",
    }  # fmt: skip


class Folder:
    """A run folder to fill with records; every method returns it."""

    def __init__(self, root: Path, job_id: str = "7", submitted_at: float | None = BEGAN - 60) -> None:
        self.run = RunPaths(root)
        write_json(self.run.experiment, {"schema": 1, "run_id": root.name, "plan": _plan()})
        os.utime(self.run.experiment, (BEGAN - 60, BEGAN - 60))
        if submitted_at is not None:
            self.submitted(job_id, submitted_at)

    def submitted(self, job_id: str = "7", at: float = BEGAN - 60) -> Folder:
        moment = datetime.fromtimestamp(at, timezone.utc).isoformat()
        record = {
            "schema": 2,
            "scheduler": "slurm",
            "uuid": UUID,
            "cluster": "here",
            "job_id": job_id,
            "array_task": None,
        }
        write_json(self.run.job, {**record, "job_name": f"tiny-z3-{UUID[:8]}", "submitted_at": moment})
        return self

    def local(self) -> Folder:
        """Of this machine's queue, whose process is long gone."""
        gone = {"pid": 2**22 + 1, "host": socket.gethostname(), "start_ticks": 1, "boot_id": "x"}
        moment = datetime.fromtimestamp(BEGAN, timezone.utc).isoformat()
        record = {"schema": 2, "scheduler": "local", "uuid": UUID, "job_id": "1", "array_task": None}
        write_json(self.run.job, {**record, "submitted_at": moment, "process": gone})
        write_json(self.run.process, {"queue": gone, "script": gone, "started_at": BEGAN})
        return self

    def planned(self, **changes: Any) -> Folder:
        """The same run with another plan."""
        record = read_json(self.run.experiment) or {}
        write_json(self.run.experiment, {**record, "plan": {**record["plan"], **changes}})
        return self

    def exit(self, code: int, **more: Any) -> Folder:
        record = {"exit_code": code, "signal": None, "stage": "done", "started_at": BEGAN, "ended_at": ENDED, **more}
        write_json(self.run.exit, {"schema": 1, "host": "gn1", **record})
        return self

    def result(self, outcome: str, **more: Any) -> Folder:
        write_json(self.run.result, {"schema": 1, "outcome": outcome, **more})
        return self

    def made(self, last: int, *, lost: int | None = None, first: int = 1) -> Folder:
        """Its steps from `first` to `last`, whose losses are not finite numbers from `lost` on."""
        rows = [
            {
                "step": n,
                "loss": None if lost is not None and n >= lost else 5.0,
                "trained_tokens": 126,
                "step_time_s": 1.0,
            }
            for n in range(first, last + 1)
        ]
        self.run.steps.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return self

    def failure(
        self,
        rank: int,
        outcome: str = "FAILED",
        *,
        type: str = "ValueError",
        message: str = "boom",
        time: float = ENDED - 10,
        traceback: str = "",
    ) -> Folder:
        record = {"rank": rank, "time": time, "type": type, "message": message, "traceback": traceback}
        write_json(self.run.failure(rank), {**record, "outcome": outcome})
        return self

    def cancelled(self) -> Folder:
        write_json(self.run.cancelled, {"schema": 1, "requested_at": "2026-01-01T00:00:00+00:00"})
        return self

    def kept(self, job: JobRecord, asked_at: float | None = NOW - 60) -> Folder:
        record = {"schema": 1, "uuid": None, "job_id": "7", "asked_at": asked_at, "record": vars(job)}
        write_json(self.run.scheduler_record, record)
        return self

    def says(self, text: str, *, out: bool = False) -> Folder:
        (self.run.stdout if out else self.run.stderr).write_text(text)
        return self

    def steps(self, count: int = 20, number: int | None = None) -> Folder:
        """Steps of the last try, or of the earlier one with that number."""
        run = self.run if number is None else RunPaths(self.run.tries / str(number))
        run.root.mkdir(parents=True, exist_ok=True)
        lines = [{"step": k, "loss": 3.0, "step_time_s": 0.5, "tokens_per_second": 256.0} for k in range(1, count + 1)]
        run.steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self

    def started(self, *moments: float, host: str = "gn1") -> Folder:
        lines = [{"schema": 1, "job_id": "7", "array_task": None, "host": host, "time": at} for at in moments]
        self.run.started.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self


def job(state: str, exit_code: int = 0, signal: int = 0, **more: Any) -> JobRecord:
    """The scheduler's record of a job that ran when a test does not say otherwise."""
    began: dict[str, Any] = {"started_at": BEGAN, "nodes": "gn1"}
    if state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "SUSPENDED", "REVOKED"):
        began["ended_at"] = ENDED
    return JobRecord(state=state, exit_code=exit_code, signal=signal, **{**began, **more})


@dataclass
class Slurm:
    """Answers about jobs by their id."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    answers: bool = False
    asked: list[Identity] = field(default_factory=list)

    def says(self, found: JobRecord | None, job_id: str = "7") -> None:
        """From now on it answers, with that record or that it knows no such job."""
        self.answers = True
        if found is None:
            self.jobs.pop(job_id, None)
        else:
            self.jobs[job_id] = found

    def ask(self, identities: Iterable[Identity]) -> Answers:
        wanted = list(identities)
        self.asked += wanted
        if not self.answers:
            said = "squeue: error: Unable to contact slurm controller"
            return Answers({"slurm": Answer(answered=False, complaint=said, cluster="here")})
        records: dict[object, JobRecord] = {
            one.key: self.jobs[one.job_id] for one in wanted if one.job_id is not None and one.job_id in self.jobs
        }
        return Answers({"slurm": Answer(records, cluster="here")})
