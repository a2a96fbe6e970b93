"""Run folders drawn at random: every kind of evidence, alone and together, and the ends that a review found misjudged."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from run_folders import Folder, Slurm, job

from hpc_llm.records.run import Outcome
from hpc_llm.schedulers.job_record import JobRecord

LASTED = 3600.0
"""Seconds from the start to the end of every job here."""
LIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED", "SUSPENDED", "REVOKED")
FINAL = (
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
)  # fmt: skip
REASONS = ("the loss is not a finite number", "1 steps were measured, at least 3 are needed", "2 ranks", "odd")
TEXTS = {
    "time limit": "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n",
    "cancelled": "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-08-16T16:27:59 ***\n",
    "step cancelled": "slurmstepd: error: *** STEP 7.0 ON gn1 CANCELLED AT 2026-08-16T16:27:59 ***\n",
    "preempted": "slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-08-16T16:27:59 DUE TO PREEMPTION ***\n",
    "node": "srun: error: Node failure on gn1\n",
    "oom kill": "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks\n",
    "killed": "srun: error: gn1: task 1: Killed\n/x/job.sh: line 9: 12 Killed   python\n",
    "exited": "srun: error: gn1: task 1: Exited with exit code 7\n",
    "device": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "exception": 'Traceback (most recent call last):\n  File "t.py", line 1, in f\nOSError: [Errno 5] Input/output error\n',
    "segfault": "Fatal Python error: Segmentation fault\n",
    "disk": "OSError: [Errno 28] No space left on device\n",
    "missing": "Traceback (most recent call last):\n  File \"t.py\", line 1\nModuleNotFoundError: No module named 'x'\n",
    "peer": "RuntimeError: Connection closed by peer\n",
    "noise": "WARNING: nothing of interest\n",
}


@dataclass(frozen=True)
class Case:
    """The evidence on one run, apart from the times, which follow from when it began."""

    origin: str = "slurm"
    """slurm, local or copy: what its folder says of how it was submitted."""
    exit: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    failures: tuple[Mapping[str, Any], ...] = ()
    cancelled: bool = False
    kept: str | None = None
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    steps: int = 0
    tries: int = 0
    """Earlier ones."""
    scheduler: str | None = None
    """None where it does not answer, `absent`, or a state."""
    codes: tuple[int, int] = (0, 0)
    """Exit code and signal in the scheduler's record."""
    reason: str | None = None
    age: float = LASTED
    """Seconds from the end of the job to the look, by the clock of who looks."""

    def pieces(self, folder: Folder, slurm: Slurm, began: float) -> list[Callable[[], object]]:
        """What makes the folder, each piece of evidence for itself, in the order in which it usually comes."""
        made: list[Callable[[], object]] = []
        ended = began + LASTED
        if self.origin == "slurm":
            folder.submitted(at=began - 60)
        elif self.origin == "local":
            folder.local()
        if self.tries:
            made.append(lambda: [folder.steps(5, number) for number in range(1, self.tries + 1)])
            made.append(lambda: folder.started(*(began - 100 * k for k in reversed(range(self.tries + 1)))))
        if self.steps:
            made.append(lambda: folder.steps(self.steps))
        if self.out:
            made.append(lambda: folder.says("".join(TEXTS[name] for name in self.out), out=True))
        if self.err:
            made.append(lambda: folder.says("".join(TEXTS[name] for name in self.err)))
        for rank, failure in enumerate(self.failures):
            made.append(lambda rank=rank, failure=failure: folder.failure(rank, time=ended - 10 + rank, **failure))
        if self.result is not None:
            result = dict(self.result)
            made.append(lambda: folder.result(**result))
        if self.exit is not None:
            left = {"started_at": began, "ended_at": ended, "restart_count": self.tries, **self.exit}
            made.append(lambda: folder.exit(**left))
        if self.cancelled:
            made.append(folder.cancelled)
        if self.kept is not None:
            made.append(lambda: folder.kept(self._record(self.kept or "", began), asked_at=ended + 30))
        if self.scheduler is not None:
            said = None if self.scheduler == "absent" else self._record(self.scheduler, began)
            made.append(lambda: slurm.says(said))
        return made

    def _record(self, state: str, began: float) -> JobRecord:
        times: dict[str, Any] = {"started_at": None if state == "PENDING" else began}
        if state not in LIVE:
            times["ended_at"] = began + LASTED
        return job(state, *self.codes, reason=self.reason, nodes="gn1", **times)


def _exits() -> st.SearchStrategy[Mapping[str, Any]]:
    codes = st.sampled_from([0, 0, 1, 3, 7, 71, 72, 73, 74, 75, 76, 77, 130, 134, 135, 137, 138, 139, 143])
    return st.fixed_dictionaries(
        {"code": codes},
        optional={
            "signal": st.sampled_from([None, "TERM", "INT", "HUP", "USR1", "USR2", "KILL", "XCPU", "SIGTERM"]),
            "stage": st.sampled_from([None, "prelude", "launch", "done"]),
            "time_limit_s": st.sampled_from([None, 300, LASTED, LASTED + 5, LASTED + 600]),
            "reason": st.sampled_from([None, "module x failed to load", "mpirun is not on PATH"]),
        },
    )


def _results() -> st.SearchStrategy[Mapping[str, Any]]:
    outcomes = ["COMPLETED", "COMPLETED", "INVALID", "FAILED", "OOM_DEVICE", "OOM_HOST", "UNKNOWN", "TIMEOUT", "NEW"]
    return st.fixed_dictionaries(
        {"outcome": st.sampled_from(outcomes)},
        optional={
            "outcome_reason": st.sampled_from(
                ["rank 0: KeyError: 'x'", "rank 1: SIGTERM: stopped by SIGTERM", "MemoryError"]
            ),
            "invalid_reason": st.sampled_from(REASONS),
        },
    )


def _failures() -> st.SearchStrategy[tuple[Mapping[str, Any], ...]]:
    one = st.fixed_dictionaries(
        {
            "outcome": st.sampled_from(["FAILED", "OOM_DEVICE", "OOM_HOST", "UNKNOWN"]),
            "type": st.sampled_from(["ValueError", "SIGTERM", "MemoryError", "OutOfMemoryError", "RuntimeError"]),
            "message": st.sampled_from(["boom", "stopped by SIGTERM after step 4", "CUDA out of memory.", "Connection reset by peer"]),
        }
    )  # fmt: skip
    return st.lists(one, max_size=2).map(tuple)


def cases() -> st.SearchStrategy[Case]:
    """Any evidence at all."""
    texts = st.lists(st.sampled_from(sorted(TEXTS)), max_size=3).map(tuple)
    return st.builds(
        Case,
        origin=st.sampled_from(["slurm", "slurm", "slurm", "slurm", "local", "copy"]),
        exit=st.none() | _exits(),
        result=st.none() | _results(),
        failures=st.just(()) | _failures(),
        cancelled=st.sampled_from([False, False, True]),
        kept=st.none() | st.sampled_from(FINAL),
        out=st.just(()) | texts,
        err=st.just(()) | texts,
        steps=st.sampled_from([0, 0, 20]),
        tries=st.sampled_from([0, 0, 0, 1, 2]),
        scheduler=st.none() | st.just("absent") | st.sampled_from(LIVE) | st.sampled_from(FINAL),
        codes=st.sampled_from([(0, 0), (1, 0), (0, 9), (0, 10), (0, 53), (0, 15), (9, 0)]),
        reason=st.sampled_from([None, "Priority", "PartitionNodeLimit", "Dependency", "JobHeldUser", "None"]),
        age=st.sampled_from([LASTED, LASTED, LASTED, 10.0, -30.0, 90.0, -28800.0, 28800.0]),
    )


def drawn(seed: int, count: int) -> list[Case]:
    """So many cases, the same ones each time, without hypothesis' search."""
    chance = random.Random(seed)
    states = (None, *FINAL)
    found = []
    for _ in range(count):
        words = [name for name in sorted(TEXTS) if chance.random() < 0.12]
        found.append(
            Case(
                origin=chance.choice(("slurm", "slurm", "copy", "local")),
                exit=chance.choice((None, {"code": chance.choice((0, 1, 137, 139)), "stage": "done"}, {"code": 72, "stage": "prelude"},
                                    {"code": 143, "signal": "TERM", "time_limit_s": LASTED})),
                result=chance.choice((None, None, {"outcome": "COMPLETED"}, {"outcome": "INVALID", "invalid_reason": "2 ranks"},
                                      {"outcome": "OOM_HOST", "outcome_reason": "rank 0: MemoryError: x"})),
                failures=chance.choice(((), (), ({"outcome": "OOM_DEVICE", "type": "OutOfMemoryError"},), ({"outcome": "FAILED"},))),
                cancelled=chance.random() < 0.2,
                kept=chance.choice(states),
                err=tuple(words),
                steps=chance.choice((0, 20)),
                codes=chance.choice(((0, 0), (1, 0), (0, 9))),
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Reviewed:
    """A case whose end is known."""

    case: Case
    outcome: Outcome | None
    cause: str
    words: str = field(default="")
    """Part of the reason."""


_TOLD = {"outcome": "UNKNOWN", "type": "SIGTERM", "message": "stopped by SIGTERM after step 4 of 50"}
_HOST = {"outcome": "OOM_HOST", "type": "MemoryError", "message": "no more"}
_NEAR = {"code": 143, "signal": "TERM", "time_limit_s": LASTED + 5, "stage": "done"}
REVIEWED = {
    "SIGTERM 5 s before the limit": Reviewed(Case(exit=_NEAR, failures=(_TOLD,)), Outcome.TIMEOUT, "walltime"),
    "the same, and Slurm does not know it": Reviewed(Case(exit=_NEAR, scheduler="absent"), Outcome.TIMEOUT, "walltime"),
    "the worker recorded OOM_HOST": Reviewed(
        Case(exit={"code": 1}, failures=(_HOST,), result=_HOST | {"outcome_reason": "rank 0: MemoryError: no more"}, scheduler="FAILED"),
        Outcome.OOM_HOST, "host_oom", "MemoryError"),
    "OOM_HOST in the result only": Reviewed(
        Case(exit={"code": 1}, result={"outcome": "OOM_HOST", "outcome_reason": "rank 0: MemoryError: no more"}),
        Outcome.OOM_HOST, "host_oom", "MemoryError"),
    "exit 0 without a result": Reviewed(Case(exit={"code": 0}, scheduler="COMPLETED"), Outcome.UNKNOWN, "unknown", "left no result"),
    "USR1 killed the script, as version 0.1 recorded it": Reviewed(
        Case(exit={"code": 0, "stage": "launch"}, scheduler="FAILED", codes=(0, 10)), Outcome.FAILED, "unknown", "SIGUSR1"),
    "USR1 killed the script": Reviewed(Case(exit={"code": 138, "signal": "USR1", "stage": "launch"}), Outcome.FAILED, "unknown", "SIGUSR1"),
    "the batch script was killed by SIGKILL": Reviewed(
        Case(scheduler="FAILED", codes=(0, 9), err=("step cancelled", "killed")), Outcome.FAILED, "host_oom"),
    "a running job": Reviewed(Case(scheduler="RUNNING", steps=20), None, "none"),
    "pending for ever": Reviewed(Case(scheduler="PENDING", reason="PartitionNodeLimit"), None, "none", "waiting does not help"),
    "a program that exits with 76": Reviewed(Case(exit={"code": 76, "stage": "done"}, scheduler="FAILED"), Outcome.FAILED, "unknown", "exit code 76"),
    "a stop with 76": Reviewed(Case(exit={"code": 76, "stage": "prelude"}), Outcome.FAILED, "config_error", "run folder"),
    "a lost job, and this clock is 8 h ahead": Reviewed(Case(scheduler="absent", age=-28800.0), Outcome.UNKNOWN, "unknown", "no longer knows"),
    "a good run whose files are late": Reviewed(Case(scheduler="FAILED", codes=(1, 0), age=20.0), None, "none", "not visible here yet"),
    "the same when they have come": Reviewed(
        Case(scheduler="FAILED", codes=(1, 0), age=20.0, exit={"code": 0}, result={"outcome": "COMPLETED"}), Outcome.COMPLETED, "none"),
    "an earlier try's cancellation and a second that failed": Reviewed(
        Case(tries=1, exit={"code": 3}, scheduler="FAILED", codes=(3, 0), err=("step cancelled",)), Outcome.FAILED, "unknown", "exit code 3"),
}  # fmt: skip
