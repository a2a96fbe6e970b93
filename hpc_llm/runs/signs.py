"""What the records of an ended run say, in the terms in which its text speaks: signs of causes. Pure."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping

from hpc_llm.causes.catalogue import BY_ID
from hpc_llm.causes.cause import Role, Sign
from hpc_llm.causes.found import Found, signs_in
from hpc_llm.causes.scheduler import CANCELLED
from hpc_llm.records.run import CANCELLED_FILE, EXIT_FILE, HALF_EXIT, NO_EXIT_WRITTEN, RESULT_FILE, Outcome, Stop
from hpc_llm.runs.records import ExitRecord, Failure, Records, Result
from hpc_llm.schedulers.job_record import JobRecord

_LONGEST_REASON = 300
_INTERRUPTED = 46
"""Precedence of a KeyboardInterrupt."""
_STOP_CAUSES = {
    Stop.NO_MODULE_SYSTEM: "module_missing",
    Stop.MODULE_FAILED: "module_missing",
    Stop.NO_CONDA: "conda_not_initialised",
    Stop.ENV_NOT_ACTIVE: "conda_not_initialised",
    Stop.NO_TRAINING_STACK: "package_missing",
    Stop.NO_RUN_FOLDER: "config_error",
    Stop.CODE_CHANGED: "config_error",
    Stop.NO_ENV_FILE: "config_error",
    Stop.NO_PROFILER: "profiler_blocked",
    Stop.CANCELLED: "cancelled",
}
_KILLED = {137: ("host_oom", 41), 139: ("segfault", 60), 135: ("bus_error", 60), 134: ("segfault", 40)}
"""Exit codes of a script whose program was ended by a signal, with the precedence of this evidence."""
_NUMBERS = {one.name: one.value for one in signal.Signals}
_ASKED_TO_END = frozenset(("TERM", "INT", "HUP", "QUIT"))
_CANCELLED = "cancelled, and nothing in its folder says by whom"
"""`hpc-llm cancel JOBID` of another folder of runs leaves no mark there either, as scancel does not."""
_BY_STATE: Mapping[str, tuple[str, str]] = {
    "TIMEOUT": ("walltime", "the time limit was reached"),
    "DEADLINE": ("walltime", "the job's deadline was reached"),
    "NODE_FAIL": ("node_fail", "a node failed"),
    "BOOT_FAIL": ("node_fail", "a node could not be started"),
    "PREEMPTED": ("preempted", "a job of higher priority took the nodes"),
    "OUT_OF_MEMORY": ("host_oom", "the host's memory ran out"),
    "CANCELLED": ("cancelled", _CANCELLED),
}
"""Slurm's final states that name a cause, and the reason that a table gives."""
ENDED_BY_SLURM = frozenset(_BY_STATE) - {"OUT_OF_MEMORY"}
"""Final states by which Slurm says that it took the job down."""
_OUTPUT_MISSING = (0, 53)
"""Exit code and signal of a job whose output file cannot be opened: its script is never started."""
_INVALID = (
    ("finite number", "nan_loss", None),
    ("overflowed", "loss_scale_collapse", None),
    (
        "the search ended with",
        "walltime",
        "go on with what it has tried: `hpc-llm submit --resume RUN --time HH:MM:SS`, longer than it had",
    ),
    (
        "the search ended after",
        "search_unfinished",
        "go on with what it has tried: `hpc-llm submit --resume RUN --set most_tries=N`",
    ),
    ("steps were measured", "config_error", "let it train longer: --steps N, with fewer of them in --warmup-steps"),
    ("ranks", "config_error", "see that the launcher starts as many ranks as the plan has: --set launcher=…"),
    ("it ran on", "gpu_missing", "ask for the GPU that was planned: --sbatch constraint=… or another --partition"),
)
"""Words of the reason why a measurement does not count, the cause they mean, and what to do about it."""
_SKIPPED = "At each step that was measured the gradients were no finite numbers, so that the step was skipped: the run has diverged, or began with bad numbers."
"""In whatever precision: only fp16 has a loss scale."""
_CONTRADICTED = "see who else writes into its folder, and whether its disk is sound; only another run can measure it"
_BY_OUTCOME = {
    cause.outcome: cause.id for cause in BY_ID.values() if cause.outcome.name in (
        "OOM_DEVICE", "OOM_HOST", "TIMEOUT", "CANCELLED", "PREEMPTED", "NODE_FAIL",
    )
}  # fmt: skip
"""Outcomes that have one cause: what a record names needs no text to show it."""
NAMED_BY_WORKER = frozenset((Outcome.OOM_DEVICE, Outcome.OOM_HOST))
"""What a rank that fails knows of its own end by the type of the error."""


def signs_of(records: Records, job: JobRecord | None) -> list[Found]:
    """All that the records say of the end of a run; `job` is the scheduler's final record of it, if there is one."""
    found = [one for failure in records.failures for one in _of_failure(failure)]
    if not records.failures and records.result is not None:
        found += _of_result(records.result)
    left = records.exit
    if not found and (records.has_half_exit if left is None else left.reason == NO_EXIT_WRITTEN):
        # Nothing else could be written either.
        found.append(_stated("disk_full", HALF_EXIT, NO_EXIT_WRITTEN, confidence=0.6, precedence=43))
    if left is not None:
        found += _of_exit(left, job, records.is_cancelled)
    if job is not None:
        found += _of_job(job, records)
    elif records.is_cancelled and records.exit is None:
        found.append(_stated("cancelled", CANCELLED_FILE, "cancelled with hpc-llm cancel", confidence=0.97))
    return found


def of_invalid(result: Result) -> Found:
    """Why the measurement of a run that came to its end does not count."""
    if result.contradiction is not None:
        said = "; ".join(filter(None, (result.invalid_reason, result.contradiction)))
        return _stated("unknown", RESULT_FILE, said, confidence=0.95, remedy=_CONTRADICTED)
    reason = result.invalid_reason or result.reason or "the worker says no more"
    cause, remedy = next(((c, r) for words, c, r in _INVALID if words in reason), ("config_error", None))
    meaning = _SKIPPED if cause == "loss_scale_collapse" else None
    return _stated(cause, RESULT_FILE, reason, confidence=0.95, remedy=remedy, meaning=meaning)


def _stated(
    cause_id: str,
    file: str,
    text: str,
    *,
    confidence: float,
    reason: str | None = None,
    precedence: int | None = None,
    remedy: str | None = None,
    role: Role = Role.ROOT,
    meaning: str | None = None,
) -> Found:
    """A sign that a record states, rather than a line of output."""
    sign = Sign("", (), role=role, confidence=confidence, precedence=precedence, remedy=remedy, meaning=meaning)
    return Found(BY_ID[cause_id], sign, text, position=-1, file=file, reason=one_line(reason or text))


def _of_failure(failure: Failure) -> Iterator[Found]:
    reason = one_line(f"rank {failure.rank}: {failure.type}: {failure.message}")
    text = f"{failure.traceback}\n{failure.type}: {failure.message}\n"
    found = signs_in(text.encode("utf-8", "replace"))
    known = _BY_OUTCOME.get(failure.outcome)
    if known is not None and not any(one.cause.id == known for one in found):
        found.append(_stated(known, failure.file, f"{failure.type}: {failure.message}", confidence=0.97))
    if not found:
        found.append(_failed(failure))
    for one in found:
        one.file, one.rank, one.time, one.reason = failure.file, failure.rank, failure.time, reason
        yield one


def _failed(failure: Failure) -> Found:
    """An error without a traceback, in words that no cause knows."""
    text = f"{failure.type}: {failure.message}"
    role = Role.CASCADE if failure.is_told_to_stop else Role.ROOT
    found = _stated("python_exception", failure.file, text, confidence=0.85, role=role, precedence=44)
    found.details = {"exception": failure.type, "message": one_line(failure.message)}
    return found


def _of_result(result: Result) -> Iterator[Found]:
    """The result of a run that failed, where no rank's own record is there."""
    reason = result.reason or result.outcome.value
    said = signs_in(f"{reason}\n".encode("utf-8", "replace"))
    if result.outcome in _BY_OUTCOME:
        yield _stated(_BY_OUTCOME[result.outcome], RESULT_FILE, reason, confidence=0.97)
    elif result.outcome is Outcome.FAILED and not said:
        yield _stated("python_exception", RESULT_FILE, reason, confidence=0.8, precedence=44)
    for one in said:
        one.file, one.position, one.reason = RESULT_FILE, -1, one_line(reason)
        yield one


def _of_job(job: JobRecord, records: Records) -> Iterator[Found]:
    is_cancelled = records.is_cancelled
    asked = " (requested with hpc-llm cancel)" if is_cancelled else ""
    if (job.exit_code, job.signal) == _OUTPUT_MISSING:
        yield _without_output(job, records)
        return
    if job.state == "DEADLINE" and job.elapsed_s == 0:
        reason = "its deadline was too near for it to start"
        remedy = "submit it again without --sbatch deadline=…, or with a shorter --time"
        text = f"{job.state}: {reason}"
        yield _stated("config_error", "scheduler", text, confidence=0.9, reason=reason, remedy=remedy)
        return
    if job.out_of_memory or job.state in _BY_STATE:
        cause, reason = _BY_STATE["OUT_OF_MEMORY" if job.out_of_memory else job.state]
        if cause == "cancelled":
            reason = _why_cancelled(job, is_cancelled)
        elif job.nodes and job.state.endswith("FAIL"):
            reason = f"{reason} ({job.nodes})"
        said = _stated(cause, "scheduler", f"{job.state}: {reason}{asked}", confidence=0.97, reason=reason)
        said.time = math.inf  # a rank or a log that says the same says more
        yield said
    elif job.state != "COMPLETED":
        how = f"ended by {_name_of(job.signal)}" if job.signal else f"exit code {job.exit_code}"
        text = f"{job.state}: {how}"
        if job.signal == signal.SIGKILL:  # by whom Slurm does not say: most often it is the kernel, for memory
            yield _stated("host_oom", "scheduler", text, confidence=0.5, precedence=40, reason=how)
        yield _stated("unknown", "scheduler", text, confidence=0.5, role=Role.CONFIRMATION, reason=how)


def _without_output(job: JobRecord, records: Records) -> Found:
    gone, made_as = records.gone_from, records.identity.run_dir if records.identity else None
    if gone is not None:
        why = f"its job prints and works in {gone}, where no folder is any more"
        remedy = "submit it again, and rename no folder that a job waits to work in"
    else:
        why = "on the compute node its folder is missing, or no file can be made there"
        remedy = (
            f"see that {made_as or 'its folder'} is there on the compute nodes, and that no quota of files or of space is used up "
            "(`df -i`, `quota -s`); then submit it again"
        )
    reason = f"the output file could not be opened: {why}"
    return _stated("config_error", "scheduler", f"{job.state}: {reason}", confidence=0.9, reason=reason, remedy=remedy)


def _why_cancelled(job: JobRecord, is_cancelled: bool) -> str:
    if is_cancelled:
        return "cancelled with hpc-llm cancel"
    if job.reason in ("Dependency", "DependencyNeverSatisfied"):
        return "the job that it waited for did not succeed"
    return _CANCELLED


def _of_exit(left: ExitRecord, job: JobRecord | None, is_cancelled: bool) -> Iterator[Found]:
    """What the script's own record of its end says; the scheduler's word on who ended it counts more."""
    if job is None and is_cancelled:
        yield _stated("cancelled", CANCELLED_FILE, "cancelled with hpc-llm cancel", confidence=0.97)
        if left.signal in _ASKED_TO_END and not left.hit_time_limit and not left.was_signalled_early:
            return  # that is the signal by which it was cancelled
    code, named = left.exit_code, f"SIG{left.signal}" if left.signal else None
    if named is not None:
        if left.was_signalled_early and left.reason:
            yield _stated("walltime", EXIT_FILE, left.reason, confidence=0.95)
        elif job is None and left.hit_time_limit:
            reason = left.reason or f"ended by {named} at its time limit"
            yield _stated("walltime", EXIT_FILE, reason, confidence=0.95)
        elif left.signal in _ASKED_TO_END and (job is None or job.state == "FAILED"):
            reason = f"ended by {named}, and no scheduler says why"
            yield _stated("cancelled", EXIT_FILE, reason, confidence=0.6, precedence=44)
        killed = _KILLED.get(128 + _NUMBERS.get(named, 0))
        if killed is not None:
            yield _stated(killed[0], EXIT_FILE, f"ended by {named}", confidence=0.6, precedence=killed[1])
        yield _stated("unknown", EXIT_FILE, f"ended by {named}", confidence=0.5, role=Role.CONFIRMATION)
        return
    if not code:
        return
    text = f"exit code {code}, stage {left.stage}" + (f": {left.reason}" if left.reason else "")
    reason = left.reason or f"exit code {code}{_signal_in(code)}"
    if left.stop is not None:
        cause = _STOP_CAUSES.get(left.stop)
        cause = cause or ("module_missing" if "mpirun" in (left.reason or "") else "package_missing")
        printed = _as_printed(left.reason, cause)
        remedy = printed.sign.remedy if printed else None
        said = _stated(cause, EXIT_FILE, text, confidence=0.99, reason=left.reason or left.stop.meaning, remedy=remedy)
        said.details = printed.details if printed else said.details
        yield said
    elif code in _KILLED:
        cause, precedence = _KILLED[code]
        yield _stated(cause, EXIT_FILE, text, confidence=0.6, precedence=precedence, reason=reason)
    else:
        yield _stated("unknown", EXIT_FILE, text, confidence=0.5, role=Role.CONFIRMATION, reason=reason)


def _as_printed(reason: str | None, cause: str) -> Found | None:
    """What the same words mean in the output of the script, where an advice of their own belongs to them."""
    found = signs_in(f"hpc-llm: {reason}\n".encode("utf-8", "replace")) if reason else []
    return next((one for one in found if one.cause.id == cause and one.sign.remedy), None)


def is_weak_taking_down(one: Found) -> bool:
    """Whether it says that the job was taken down in words that others use as well: of a step, or of a rank."""
    if one.file.startswith("failures/") and one.precedence >= _INTERRUPTED:
        return False  # a rank that was interrupted by hand says so itself
    return one.cause.id in ("cancelled", "walltime", "preempted") and (
        one.precedence < CANCELLED.precedence or one.sign.confidence < 0.9
    )


def one_line(text: str) -> str:
    """The text on one line, cut to what a table shows."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 1].rstrip()}…"


def _name_of(number: int) -> str:
    """A signal's name, or its number where it has none.

    >>> _name_of(9), _name_of(99)
    ('SIGKILL', 'signal 99')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
