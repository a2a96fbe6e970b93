"""Submission on this machine: the same script, run by bash under submitit's local executor."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hpc_llm
from hpc_llm.errors import SubmissionError
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.schedulers.local.marks import QUEUE_OF, RUN_MARKS, SWEEP, living
from hpc_llm.schedulers.local.queue import QueuedScript, RunScripts, digest_of, record_job
from hpc_llm.schedulers.local.start import revoke_start
from hpc_llm.schedulers.process import describe_process
from hpc_llm.schedulers.runs import read_identity

_TIMEOUT_MIN = 60 * 24 * 365
"""submitit ends a local job after two minutes unless told otherwise; the script knows its own limit."""


def submit_local(runs: Sequence[RunPaths], parallel: int = 1) -> str:
    """Start one process that runs the scripts of `runs` in turn, at most `parallel` at a time; returns its id.

    It has its own session and no terminal, so it outlives this command, its shell and its connection.

    Raises:
        SubmissionError: the process could not be started, and never will be; the folders stay.
    """
    scripts = tuple(_queued(run) for run in runs)
    sweep = (read_json(runs[0].job) or {}).get("sweep")
    answer = _ask_fork(RunScripts(scripts, parallel), sweep if isinstance(sweep, str) else "")
    job_id = answer.get("job_id") or _started_all_the_same(scripts)
    if job_id is None:
        raise SubmissionError(f"the local queue could not be started: {answer.get('error', 'its process died')}")
    return str(job_id)


def _queued(run: RunPaths) -> QueuedScript:
    identity = read_identity(run)
    if identity is None or identity.uuid is None:
        raise SubmissionError(f"the local queue could not be started: {run.job} is gone or damaged")
    return QueuedScript(str(run.root), identity.uuid, digest_of(run) or "")


def _ask_fork(queue: RunScripts, sweep: str) -> dict[str, Any]:
    """What the forked half says: the queue's number, or the error; nothing if it was killed."""
    answers, says = os.pipe()
    waits, lets = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        os.close(lets)
        _submit_and_exit(queue, sweep, waits, says)
    os.close(says)
    os.close(waits)
    refusal: dict[str, Any] = {}
    try:
        _hand_over(queue.scripts, describe_process(child))
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


def _submit_and_exit(queue: RunScripts, sweep: str, waits: int, says: int) -> NoReturn:
    """The forked half: once it is named in the folders it completes, whatever becomes of the command."""
    answer: dict[str, Any] = {}
    try:
        os.setsid()
        if os.read(waits, 1):  # nothing is read where the command died before that
            folder = queue.scripts[0].run.submitit
            folder.mkdir(exist_ok=True)
            _detach(folder / "queue.log")
            answer = {"job_id": _start_queue(folder, queue, sweep)}
    except BaseException as error:  # nothing may return into the copy of the caller's stack
        answer = {"error": f"{type(error).__name__}: {error}"}
    try:
        os.write(says, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _start_queue(folder: Path, queue: RunScripts, sweep: str) -> str:
    from submitit.local.local import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_TIMEOUT_MIN)
    _leave_the_working_directory()
    _mark_as_queue(queue.scripts, sweep)
    job_id = str(executor.submit(queue).job_id)
    for script in queue.scripts:
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
    queue = living().queue_of(scripts[0].uuid)
    if queue is not None:
        return queue.queue_id
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


def _detach(log: Path) -> None:
    """Let go of the terminal and of the caller's pipes, whose readers wait for their end."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
