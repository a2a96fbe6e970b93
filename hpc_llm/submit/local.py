"""Submission on this machine: the same script, run by bash under submitit's local executor."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import hpc_llm
from hpc_llm.errors import SubmissionError
from hpc_llm.run import RunPaths
from hpc_llm.submit.process import describe_process
from hpc_llm.submit.queue import RunScripts, digest_of
from hpc_llm.submit.runs import discard_run, write_job

_TIMEOUT_MIN = 60 * 24 * 365
"""submitit ends a local job after two minutes unless told otherwise; the script knows its own limit."""


def submit_local(runs: Sequence[RunPaths]) -> str:
    """Start one process that runs the scripts of `runs` one after the other; returns its id.

    It has its own session and no terminal, so it outlives this command, its shell and its connection.

    Raises:
        SubmissionError: the process could not be started; the runs' folders are gone then.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _submit_and_exit(runs, writer)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        answer: dict[str, Any] = json.loads(pipe.read() or "{}")
    os.waitpid(child, 0)
    if "job_id" not in answer:
        for run in runs:
            discard_run(run)
        raise SubmissionError(f"the local queue could not be started: {answer.get('error', 'its process died')}")
    return str(answer["job_id"])


def _submit_and_exit(runs: Sequence[RunPaths], writer: int) -> NoReturn:
    """The forked half: whatever becomes of the command from here on, this part completes."""
    answer: dict[str, Any]
    try:
        os.setsid()
        folder = runs[0].submitit
        folder.mkdir(parents=True, exist_ok=True)
        _detach(folder / "queue.log")
        answer = {"job_id": _start_queue(folder, runs)}
    except BaseException as error:  # nothing may return into the copy of the caller's stack
        answer = {"error": f"{type(error).__name__}: {error}"}
    try:
        os.write(writer, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _start_queue(folder: Path, runs: Sequence[RunPaths]) -> str:
    from submitit.local.local import LocalExecutor

    executor = LocalExecutor(folder)
    executor.update_parameters(timeout_min=_TIMEOUT_MIN)
    digests = tuple(digest_of(run) or "" for run in runs)
    scripts = RunScripts(tuple(str(run.root) for run in runs), digests=digests)
    _leave_the_working_directory()
    job = executor.submit(scripts)
    for run in runs:
        write_job(run, job.job_id, process=describe_process(int(job.job_id)))
    return str(job.job_id)


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
