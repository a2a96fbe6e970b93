"""The state of many runs at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpc_llm.planning.study import StudyRun
from hpc_llm.records.adapted import adapted
from hpc_llm.records.metrics import is_unsteady
from hpc_llm.records.possible import bounded
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.runs.fields import Fields, iso
from hpc_llm.runs.looks import Look, look
from hpc_llm.runs.progress import read_progress
from hpc_llm.runs.searching import search_found, search_progress
from hpc_llm.schedulers.job_record import JobRecord
from hpc_llm.schedulers.runs import in_words_of_copy, original_of

_TAKEN_DOWN = (Outcome.NODE_FAIL, Outcome.PREEMPTED, Outcome.TIMEOUT, Outcome.CANCELLED)


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """What became of one run so far."""

    run_id: str
    job_id: str | None
    cluster: str | None
    method: str | None
    state: str
    """The scheduler's word: PENDING, RUNNING, COMPLETED, TIMEOUT; ENDING while its files may still come."""
    outcome: Outcome | None
    """None until the run is over."""
    reason: str | None
    exit_code: int | None
    started_at: str | None
    """ISO 8601, UTC."""
    elapsed_s: float | None
    tokens_per_second: float | None
    """Of the result, or of the latest measured steps while it runs."""
    step: int | None
    steps: int | None
    """All optimizer steps planned."""
    study: str | None = None
    """Of which study it is a run, and how that calls it."""
    study_run: str | None = None
    expect: str | None = None
    """The outcome that its study expects; None means that it completes."""
    smoke: bool | None = None
    """True where it is a small run that only shows that its study works."""
    adapted: str | None = None
    """What ran otherwise than planned because of the node, in short."""

    @property
    def is_as_expected(self) -> bool:
        """Whether it is over and ended as its study expects: by default it completes."""
        return self.outcome is not None and self.outcome.value == (self.expect or Outcome.COMPLETED.value)

    @property
    def expectation(self) -> str | None:
        """In words for a table: how it should end, and whether it did; None where nobody said."""
        if self.expect is None:
            return "smoke" if self.smoke else None
        verdict = "" if self.outcome is None else ": yes" if self.is_as_expected else ": no"
        return f"{self.expect}{verdict}"

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    def to_dict(self) -> dict[str, Any]:
        """JSON types, with stable keys."""
        return {**asdict(self), "outcome": self.outcome.value if self.outcome else None}


def status(runs: Iterable[RunPaths], now: float | None = None) -> list[RunStatus]:
    """The status of `runs`, in their order. `now` is Unix time, the clock's by default."""
    return list(statuses(runs, now))


def statuses(runs: Iterable[RunPaths], now: float | None = None) -> Iterator[RunStatus]:
    """The same as they are found."""
    return map(status_of, look(runs, now))


def status_of(found: Look) -> RunStatus:
    """The status that one look gives; a copy of a run's folder, whoever made it, has the files of the run and not its job."""
    made, copied = _as_found(found), why_a_copy(found)
    if copied is None:
        return made
    reason = "; ".join(filter(None, (copied, made.reason)))
    if made.is_over:
        return replace(made, job_id=None, reason=reason)
    return replace(made, job_id=None, state="UNKNOWN", reason=reason, started_at=None, elapsed_s=None)


def why_a_copy(found: Look) -> str | None:
    """By what a folder is known as a copy: its name and place, or, where its maker has changed these in the records, that the job
    is of another user than the folder. Root's folders tell nothing: an administrator may have moved them."""
    identity = found.records.identity
    original = (
        original_of(found.run, identity, found.records.experiment.get("run_id")) if identity is not None else None
    )
    if original is not None:
        return in_words_of_copy(found.run, original)
    user = found.job.user_id if found.job is not None else None
    with contextlib.suppress(OSError):
        if user is not None and found.run.root.lstat().st_uid not in (user, 0):
            return "its folder belongs to another user than its job, and is a copy"
    return None


def _as_found(found: Look) -> RunStatus:
    """The status by the folder's own records."""
    records, judgement = found.records, found.judgement
    figures = records.result.values if records.result else {}
    plan, result = Fields(records.plan), Fields(figures)
    started_at = _started_at(found)
    measured = result.rate("tokens_per_second")
    is_asked = "tokens_per_second" not in figures  # a result that holds an impossible one has none, as everywhere
    progress = read_progress(records.run.steps, is_asked, records.plan) if records.has_steps else None
    reason = [judgement.reason, progress.contradiction if progress else None]
    if not judgement.is_over and progress is None:
        reason.append(search_progress(records.run))
    elif judgement.outcome is Outcome.COMPLETED:
        reason.append(search_found(figures) or _unsteady(result))
    return RunStatus(
        run_id=records.run.run_id,
        job_id=records.identity.job_id if records.identity else None,
        cluster=plan.text("cluster"),
        method=records.method,
        state=judgement.state,
        outcome=judgement.outcome,
        reason="; ".join(filter(None, reason)) or None,
        exit_code=_exit_code(found),
        started_at=None if started_at is None else iso(started_at),
        elapsed_s=_elapsed(found, started_at),
        tokens_per_second=measured or (progress.tokens_per_second if progress else None),
        step=progress.step if progress else None,
        steps=plan.whole("steps", least=0),
        adapted=adapted(figures),
        **_place(StudyRun.of_record(records.experiment.get("study"))),
    )


def _unsteady(result: Fields) -> str | None:
    """That a few steps decide the rate of a training."""
    mean_s, median_s = (result.rate(f"step_time_s_{name}") for name in ("mean", "p50"))
    if mean_s is None or median_s is None or not is_unsteady(mean_s, median_s):
        return None
    return f"a few of its steps took far longer than the others (mean {mean_s:.3g} s, median {median_s:.3g} s) and decide its tokens/s"


def _place(study: StudyRun | None) -> dict[str, Any]:
    """Its place in its study; nothing where there is none."""
    if study is None:
        return {}
    return {
        "study": bounded("study", study.study),
        "study_run": bounded("study_run", study.name),
        "expect": study.expect,
        "smoke": study.smoke or None,
    }


def _final(found: Look) -> JobRecord | None:
    return found.job if found.job is not None and not found.job.is_live else None


def _exit_code(found: Look) -> int | None:
    """The script's own, else Slurm's as a shell would put it: 128 and the signal. None where the job was taken down."""
    left, job = found.records.exit, _final(found)
    if not found.judgement.is_over:
        return None
    if left is not None and left.exit_code is not None:
        taken_down = found.judgement.outcome in _TAKEN_DOWN
        return None if taken_down and left.exit_code == 0 else left.exit_code
    if job is None or job.state not in ("COMPLETED", "FAILED", "OUT_OF_MEMORY"):
        return None
    return 128 + job.signal if job.signal else job.exit_code


def _started_at(found: Look) -> float | None:
    records, job = found.records, found.job
    if job is not None and job.state != "PENDING" and job.started_at:
        return job.started_at
    if records.exit is not None and records.exit.started_at:
        return records.exit.started_at
    return Fields(records.queue or {}).moment("started_at")


def _elapsed(found: Look, started_at: float | None) -> float | None:
    left, job = found.records.exit, found.job
    if started_at is None:
        return None
    if job is not None and job.elapsed_s is not None:
        return job.elapsed_s
    if not found.judgement.is_over:
        return max(0.0, round(found.known.now - started_at, 3))
    if left is None or not left.ended_at or left.ended_at < started_at:  # a clock was set back meanwhile
        return None
    return round(left.ended_at - started_at, 3)
