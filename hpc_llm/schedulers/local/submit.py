"""Submission on this machine: the same script, run by bash under submitit's local executor."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hpc_llm
from hpc_llm.errors import SubmissionError
from hpc_llm.records.files import read_json
from hpc_llm.schedulers.local import queue
from hpc_llm.schedulers.local.marks import QUEUE_OF, RUN_MARKS, SWEEP, living
from hpc_llm.schedulers.local.queue import QueuedScript, RunScripts, detach, record_job
from hpc_llm.schedulers.local.sealed import sealed_copy
from hpc_llm.schedulers.local.start import revoke_start
from hpc_llm.schedulers.process import describe_process

_TIMEOUT_MIN = 60 * 24 * 365
"""submitit ends a local job after two minutes unless told otherwise; the script knows its own limit."""


def submit_local(scripts: Sequence[QueuedScript], parallel: int = 1, sweep: str = "") -> str:
    """Start one process that runs these scripts in turn, at most `parallel` at a time; returns its id.

    It has its own session and no terminal, so it outlives this command, its shell and its connection. What it is to run it is told
    by an open file: who can rename the runs' folders could put another one in the place of any that has a name.

    Raises:
        SubmissionError: the process could not be started, and never will be; the folders stay.
    """
    answer = _ask_fork(RunScripts(tuple(scripts), parallel), sweep)
    job_id = answer.get("job_id") or _started_all_the_same(scripts)
    if job_id is None:
        raise SubmissionError(f"the local queue could not be started: {answer.get('error', 'its process died')}")
    return str(job_id)


def _ask_fork(given: RunScripts, sweep: str) -> dict[str, Any]:
    """What the forked half says: the queue's number, or the error; nothing if it was killed."""
    answers, says = os.pipe()
    waits, lets = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        os.close(lets)
        _submit_and_exit(given, sweep, waits, says)
    os.close(says)
    os.close(waits)
    refusal: dict[str, Any] = {}
    try:
        _hand_over(given.scripts, describe_process(child))
        os.write(lets, b"1")
    except OSError as error:
        refusal = {"error": f"{type(error).__name__}: {error}"}
    finally:
        os.close(lets)
    with os.fdopen(answers, encoding="utf-8") as pipe:
        answer: dict[str, Any] = json.loads(pipe.read() or "{}")
    with contextlib.suppress(ChildProcessError):  # where a program has the system collect its children
        os.waitpid(child, 0)
    return answer or refusal


def _hand_over(scripts: Sequence[QueuedScript], child: Mapping[str, Any]) -> None:
    """Name the forked half as the one that submits: this command may be killed, and that one goes on."""
    for script in scripts:
        record = read_json(script.run.job) or {}
        if record.get("uuid") != script.uuid:
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", script.folder)
        script.run.write(script.run.job, {**record, "submitter": dict(child)})


def _submit_and_exit(given: RunScripts, sweep: str, waits: int, says: int) -> NoReturn:
    """The forked half: once it is named in the folders it completes, whatever becomes of the command."""
    answer: dict[str, Any] = {}
    try:
        os.setsid()
        if os.read(waits, 1):  # nothing is read where the command died before that
            run = given.scripts[0].run
            run.submitit.mkdir(exist_ok=True)
            detach(run, sealed_copy(given.to_json()))
            answer = {"job_id": _start_queue(run.submitit, given.scripts, sweep)}
    except BaseException as error:  # nothing may return into the copy of the caller's stack
        answer = {"error": f"{type(error).__name__}: {error}"}
    try:
        os.write(says, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _start_queue(folder: Path, scripts: Sequence[QueuedScript], sweep: str) -> str:
    """Start submitit's process, which starts ours; nothing is pickled, for submitit would load whatever has the pickle's name."""
    from submitit.local.local import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_TIMEOUT_MIN)
    _leave_the_working_directory()
    _mark_as_queue(scripts, sweep)
    job_id = str(executor._submit_command(shlex.join([sys.executable, "-m", queue.__name__])).job_id)
    for script in scripts:
        record_job(script, job_id, describe_process(int(job_id)))
    return job_id


def _mark_as_queue(scripts: Sequence[QueuedScript], sweep: str) -> None:
    """Give the processes of the queue their marks; those of a run that this command may be part of are not theirs."""
    for name in RUN_MARKS:
        os.environ.pop(name, None)
    os.environ[QUEUE_OF] = ",".join(dict.fromkeys(script.uuid for script in scripts))
    os.environ[SWEEP] = sweep


def _started_all_the_same(scripts: Sequence[QueuedScript]) -> str | None:
    """The number of the queue, where the forked half was killed after it had started one; None if none ever starts them.

    What it may have started just before it died finds the start of each run taken.
    """
    found = living().queue_of(scripts[0].uuid)
    if found is not None:
        return found.queue_id
    is_revoked = False
    for script in reversed(scripts):  # the queue begins at the other end: that of the first run decides
        try:
            is_revoked = revoke_start(script.run, script.uuid)
        except OSError:  # then no queue can take it either
            is_revoked = True
    return None if is_revoked else (read_json(scripts[0].run.job) or {}).get("job_id") or ""


def _leave_the_working_directory() -> None:
    """submitit starts `python -m`, which would import what lies in the folder that one happens to be in."""
    found = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(hpc_llm.__file__).absolute().parents[1]), *found])
    os.chdir("/")
