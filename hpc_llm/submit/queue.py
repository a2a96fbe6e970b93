"""What runs in submitit's process on this machine: the scripts of one or more runs, one after the other.

A machine that measures must not run two at a time. Standard library only: it is unpickled in a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hpc_llm.record_files import read_json, read_regular, write_json
from hpc_llm.run import RunPaths, Stop
from hpc_llm.submit.environment import without_slurm
from hpc_llm.submit.process import describe_process, end_group

_DEVICES = "CUDA_VISIBLE_DEVICES"
RUN_DIR, RUN_UUID, QUEUE_ID = "HPC_LLM_RUN_DIR", "HPC_LLM_RUN_UUID", "HPC_LLM_QUEUE_ID"
"""Variables that the script of a local run, and all that it starts, has: they end with the processes."""
_PYTHON_PATH = "PYTHONPATH"


@dataclass(frozen=True)
class RunScripts:
    """Run the job scripts of these run folders in turn; a run that was cancelled meanwhile is left out."""

    folders: tuple[str, ...]
    visible_devices: str | None = field(default_factory=lambda: os.environ.get(_DEVICES))
    """The submitter's CUDA_VISIBLE_DEVICES: submitit's local executor replaces it."""
    python_path: str | None = field(default_factory=lambda: os.environ.get(_PYTHON_PATH))
    """The submitter's PYTHONPATH: this process needs one of its own."""
    digests: tuple[str, ...] = ()
    """SHA-256 of each script, for a queue is long and others may write in the folders; none: it is not looked at."""

    def __call__(self) -> list[int | None]:
        """The exit code of each script; None for a run that was left out or could not start."""
        runs = [RunPaths(Path(folder)) for folder in self.folders]
        queue = describe_process(os.getpid())
        for run in runs:
            if run.root.is_dir():
                write_json(run.process, {"schema": 1, "queue": queue})
        return [self._run(run, queue, digest) for run, digest in zip_longest(runs, self.digests)]

    def _run(self, run: RunPaths, queue: Mapping[str, Any], digest: str | None) -> int | None:
        if run.cancelled.exists() or not run.root.is_dir():
            return None
        started_at, uuid = time.time(), _uuid(run)
        if digest not in (None, digest_of(run)):
            _write_exit(run, started_at, Stop.CODE_CHANGED.value, "job.sh is not what was submitted")
            return None
        try:
            script = self._start(run)
        except OSError as error:
            _write_exit(run, started_at, 127, f"the script could not be started: {error}")
            return None
        process = describe_process(script.pid)
        with contextlib.suppress(FileNotFoundError):
            run.write(run.process, {"schema": 1, "queue": queue, "script": process, "started_at": started_at})
        if run.cancelled.exists():  # asked between the look above and the line that says whom to signal
            end_group(process)
        code = script.wait()
        if not run.exit.exists() and _uuid(run) == uuid:  # it may have been removed and made anew meanwhile
            _write_exit(run, started_at, code, "the script ended without a word of its own")
        return code

    def _start(self, run: RunPaths) -> subprocess.Popen[bytes]:
        with run.stdout.open("ab") as out, run.stderr.open("ab") as err:
            return subprocess.Popen(
                ["bash", str(run.script)],
                env={**self._environment(), **_mark(run)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # a group of its own, which cancelling can end as a whole
            )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in without_slurm(os.environ).items() if not name.startswith("SUBMITIT_")}
        given = {_DEVICES: self.visible_devices, _PYTHON_PATH: self.python_path}
        kept = {name: value for name, value in kept.items() if name not in given}
        return kept | {name: value for name, value in given.items() if value is not None}


def digest_of(run: RunPaths) -> str | None:
    """SHA-256 of the run's script; None where it cannot be read."""
    try:
        return hashlib.sha256(read_regular(run.script)).hexdigest()
    except (OSError, ValueError):
        return None


def _mark(run: RunPaths) -> dict[str, str]:
    """By which the processes of a run are known as its own when its folder is gone."""
    return {
        RUN_DIR: str(run.root),
        RUN_UUID: str(_uuid(run) or ""),
        QUEUE_ID: os.environ.get("SUBMITIT_LOCAL_JOB_ID", ""),
    }


def _uuid(run: RunPaths) -> object:
    return (read_json(run.job) or {}).get("uuid")


def _write_exit(run: RunPaths, started_at: float, code: int, reason: str) -> None:
    """Speak for a script that could not; a negative code is the signal that ended it."""
    with contextlib.suppress(FileNotFoundError):  # the folder was removed: there is nobody to tell
        _write(run, started_at, code, reason)


def _write(run: RunPaths, started_at: float, code: int, reason: str) -> None:
    job = read_json(run.job) or {}
    run.write(
        run.exit,
        {
            "schema": 1,
            "run_id": run.run_id,
            "exit_code": 128 - code if code < 0 else code,
            "signal": _signal_name(-code) if code < 0 else None,
            "stage": "prelude" if code in (127, Stop.CODE_CHANGED.value) else "launch",
            "reason": reason,
            "host": socket.gethostname(),
            "job_id": job.get("job_id"),
            "array_task": None,
            "started_at": started_at,
            "ended_at": time.time(),
            "time_limit_s": None,
            "restart_count": 0,
        },
    )


def _signal_name(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG")
