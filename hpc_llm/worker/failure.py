"""Any error, and being told to stop, ends in failures/rank-N.json and a result.json. Standard library only.

The rank that failed first is the cause; the others fail because their peer is gone. Every failing rank writes the
result from the earliest record that it finds, so it does not matter which of them live long enough.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from hpc_llm.errors import HpcLlmError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import Outcome, RunPaths
from hpc_llm.text.out_of_memory import asks_the_impossible, is_device, is_host, is_page_locking
from hpc_llm.text.own_secrets import without_own_secrets
from hpc_llm.text.secrecy import redacted
from hpc_llm.worker.result import SCHEMA, Record, build_result

_SIGTERM = "SIGTERM"
_PATIENCE_S = 30.0
"""So long a rank that failed waits for room to say why: most often it is the disk that is full, and others make room meanwhile."""
_PAUSE_S = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class RunIsInvalid(HpcLlmError):
    """What runs is not what was planned, so nothing is measured."""


def classify(error: BaseException) -> Outcome:
    """Which outcome an error means. Device and host memory running out are told apart: the remedies differ."""
    if isinstance(error, RunIsInvalid):
        return Outcome.INVALID
    text = f"{type(error).__name__}: {error}"
    if asks_the_impossible(text):
        return Outcome.FAILED
    if isinstance(error, MemoryError):
        return Outcome.OOM_HOST
    if type(error).__name__ == "OutOfMemoryError":
        return Outcome.OOM_DEVICE
    if is_device(text):
        # Page-locked host memory is asked from the GPU's driver, whose answer does not say which memory ran out.
        return Outcome.OOM_HOST if is_page_locking(_frames(error)) else Outcome.OOM_DEVICE
    return Outcome.OOM_HOST if is_host(text) else Outcome.FAILED


def report_error(record: Record, error: BaseException) -> None:
    """Leave this rank's failure and the run's result. Must not raise: the error itself is what matters."""
    message = _safe(str(error).strip()) or type(error).__name__
    details = {
        "type": type(error).__name__,
        "message": message,
        "traceback": _safe("".join(traceback.format_exception(type(error), error, error.__traceback__))),
        "outcome": classify(error).value,
    }
    _leave(record, details)


def report_refusal(folder: Path | None, error: HpcLlmError) -> None:
    """Leave a result for a run whose plan or rank could not even be read; `folder` is None where there is no run."""
    if folder is None or not folder.is_dir() or RunPaths(folder).left_by_try():
        return
    with contextlib.suppress(OSError):  # the message is on stderr too
        result = {"schema": SCHEMA, "outcome": Outcome.FAILED.value, "outcome_reason": _safe(str(error))}
        RunPaths(folder).write(RunPaths(folder).result, result)


def say_error(error: BaseException) -> None:
    """Print the error with its traceback, and without the secrets that this process was given."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    say(without_own_secrets("".join(lines)).rstrip("\n"), to_stderr=True)


def _safe(text: str) -> str:
    return redacted(without_own_secrets(text))


def report_sigterm(record: Record, more: str = "") -> None:
    """Leave the same for a run that was told to stop. Time limit, cancel and preemption all look like this."""
    message = f"stopped by SIGTERM after step {record.steps_done} of {record.plan.workload.steps}: time limit, cancel or preemption"
    message = f"{message}; {more}" if more else message
    _leave(record, {"type": _SIGTERM, "message": message, "traceback": "", "outcome": Outcome.UNKNOWN.value})


def has_other_cause(record: Record) -> bool:
    """Whether a rank has failed by itself: who was told to stop follows from that."""
    return any(each.get("type") != _SIGTERM for each in record.paths.failure_records())


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print a line. A log on a full disk takes none, which must not keep anything else from being written."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr if to_stderr else sys.stdout, flush=True)


def _leave(record: Record, details: dict[str, Any]) -> None:
    """Write it down, once there is room: nobody else knows why this rank failed. Who is told to end has no time to wait."""
    deadline = time.monotonic() + (0.0 if details["type"] == _SIGTERM else _PATIENCE_S)
    moment = time.time()
    while (problem := _problem_of_leaving(record, {"time": moment, **details})) is not None:
        if problem.errno not in _NO_ROOM or time.monotonic() >= deadline:
            # A run that was told to end while its disk was full did not end because of the disk: no words of that then.
            why = f"errno {problem.errno}" if details["type"] == _SIGTERM else str(problem)
            say(f"hpc-llm: {record.paths.failures} cannot be written: {why}")
            return
        time.sleep(_PAUSE_S)


def _problem_of_leaving(record: Record, details: dict[str, Any]) -> OSError | None:
    """Write the failure and the result; what hindered it, if anything did: a disk that is full, or has vanished."""
    try:
        if _completed(record) or not record.paths.root.is_dir():  # a run whose folder was removed is not made anew
            return None
        failure = {
            "schema": SCHEMA,
            "rank": record.ranks.rank,
            "local_rank": record.ranks.local_rank,
            "host": socket.gethostname(),
            **details,
        }
        record.write(record.paths.failure(record.ranks.rank), failure)
        _write_result_of_earliest(record)
    except OSError as problem:
        return problem
    return None


def _write_result_of_earliest(record: Record) -> None:
    """Write the result, again if an earlier failure of another rank, or a step more, appeared meanwhile."""
    written: tuple[dict[str, Any], int] | None = None
    while (found := (record.paths.failure_records()[0], _logged_bytes(record))) != written:
        earliest = found[0]
        outcome = Outcome(earliest["outcome"])
        reason = f"rank {earliest['rank']}: {earliest['type']}: {_first_line(earliest['message'])}"
        result = build_result(record, outcome, reason, earliest)
        if outcome is Outcome.INVALID:
            result["invalid_reason"] = earliest["message"]
        record.write(record.paths.result, result)
        written = found


def _logged_bytes(record: Record) -> int:
    """Of the steps that are written down, by rank 0 perhaps while another rank tells of them."""
    with contextlib.suppress(OSError):
        return record.paths.steps.stat().st_size
    return 0


def _completed(record: Record) -> bool:
    """Whether this try has its result already: an error while tearing down does not undo it."""
    result = read_json(record.paths.result)
    return result is not None and result.get("outcome") in (Outcome.COMPLETED.value, Outcome.INVALID.value)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else ""


def _frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))
