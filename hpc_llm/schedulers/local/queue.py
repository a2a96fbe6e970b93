"""What runs in submitit's process on this machine: the scripts of one or more runs, one after the other.

A machine that measures must not run two at a time, so more at a time is for who asks for it. A run is known by the UUID of
its submission, never by its path alone: the folder may be another run's by the time its turn comes. No record is worth the
queue: a full disk ends neither it nor the script that runs. Which runs these are a fresh interpreter of the login side reads
from its standard input, an open file without a name: others may be able to change what lies in the folders.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from hpc_llm.records.files import append_within, read_json, read_regular
from hpc_llm.records.run import NO_EXIT_WRITTEN, RunPaths, Stop
from hpc_llm.schedulers.environment import without_slurm
from hpc_llm.schedulers.local.marks import QUEUE_ID, QUEUE_MARKS, RUN_DIR, RUN_UUID, end_run
from hpc_llm.schedulers.local.sealed import sealed_copy
from hpc_llm.schedulers.local.start import take_start
from hpc_llm.schedulers.process import describe_process, end_group, machine_id
from hpc_llm.schedulers.submission import digest_of, now

_T = TypeVar("_T")
_DEVICES = "CUDA_VISIBLE_DEVICES"
_PYTHON_PATH = "PYTHONPATH"
_PATIENCE_S = 600.0
"""So long a start, or the last records, wait for a disk that is full or a server that is away."""
_PAUSE_S = 1.0
_PASSING = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.ETIMEDOUT,
    errno.EROFS,
)
"""What may be over in a moment."""


@dataclass(frozen=True)
class QueuedScript:
    """The script of one run, and what proves that it is still the one that was submitted."""

    folder: str
    uuid: str = ""
    """Of its submission, as job.json has it."""
    digest: str = ""
    """SHA-256 of the script, for a queue is long and others may write in the folders."""

    @property
    def run(self) -> RunPaths:
        return RunPaths(Path(self.folder))

    def holds(self) -> bool:
        """Whether the folder is still that of this submission: it may have been removed, and made anew for another."""
        return (read_json(self.run.job) or {}).get("uuid") == self.uuid


@dataclass(frozen=True)
class RunScripts:
    """Run these job scripts in turn; a run that was cancelled, or made anew, meanwhile is left out."""

    scripts: tuple[QueuedScript, ...]
    parallel: int = 1
    """Most of them at a time."""
    visible_devices: str | None = field(default_factory=lambda: os.environ.get(_DEVICES))
    """The submitter's CUDA_VISIBLE_DEVICES: submitit's local executor replaces it."""
    python_path: str | None = field(default_factory=lambda: os.environ.get(_PYTHON_PATH))
    """The submitter's PYTHONPATH: this process needs one of its own."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, text: bytes) -> RunScripts:
        """What `to_json` has written."""
        values = json.loads(text)
        return cls(**{**values, "scripts": tuple(QueuedScript(**each) for each in values["scripts"])})

    def __call__(self) -> list[int | None]:
        """The exit code of each script; None for a run that was left out or could not start."""
        queue = _Queue(self._environment())
        for script in self.scripts:
            queue.announce(script)
        if self.parallel == 1:
            codes = [queue.run(script) for script in self.scripts]
        else:
            with ThreadPoolExecutor(self.parallel) as pool:  # each thread only waits for its script
                codes = list(pool.map(queue.run, self.scripts))
        queue.close()
        return codes

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in without_slurm(os.environ).items() if not name.startswith("SUBMITIT_")}
        given = {_DEVICES: self.visible_devices, _PYTHON_PATH: self.python_path}
        kept = {name: value for name, value in kept.items() if name not in given and name != QUEUE_MARKS[0]}
        return kept | {name: value for name, value in given.items() if value is not None}


class _Queue:
    """This process, and the records of scripts' ends that it could not write yet."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process = describe_process(os.getpid())
        self._number = os.environ.get("SUBMITIT_LOCAL_JOB_ID", "")
        self._owed: list[tuple[QueuedScript, dict[str, Any]]] = []
        self._one_at_a_time = threading.Lock()

    def announce(self, script: QueuedScript) -> None:
        """Write down that this queue holds the run."""
        if script.holds():
            self._keep(script.run)

    def run(self, script: QueuedScript) -> int | None:
        self._settle()
        started_at, run = time.time(), script.run
        if self._is_left_out(script):
            return None
        record_job(script, self._number, describe_process(os.getppid()))
        text = _script_of(run)
        if text is None or digest_of(text) != script.digest:
            self._speak(script, started_at, Stop.CODE_CHANGED.value, "job.sh is not what was submitted")
            return None
        try:
            if not self._patiently(script, lambda: take_start(run, script.uuid)) or self._is_left_out(script):
                return None
            process = self._patiently(script, lambda: self._start(script, text))
        except OSError as error:
            if self._is_left_out(script):  # cancelled, or removed, while it waited
                return None
            self._speak(script, started_at, 127, f"the script could not be started: {error}")
            return None
        return self._follow(script, process, time.time())

    def close(self) -> None:
        """Write what is owed, as soon as that is possible."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._settle() and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)

    def _is_left_out(self, script: QueuedScript) -> bool:
        return script.run.cancelled.exists() or not script.holds()

    def _patiently(self, script: QueuedScript, deed: Callable[[], _T]) -> _T:
        """Do it, again and again while what hinders it may pass."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return deed()
            except OSError as error:
                if error.errno not in _PASSING or time.monotonic() > deadline or self._is_left_out(script):
                    raise
            time.sleep(_PAUSE_S)

    def _start(self, script: QueuedScript, text: bytes) -> subprocess.Popen[bytes]:
        """Start bash on the text that was checked: bash reads a file as it goes along, and others may write that one."""
        run = script.run
        copy = sealed_copy(text)
        try:
            with _printing_to(run, run.stdout) as out, _printing_to(run, run.stderr) as err:
                return subprocess.Popen(
                    # The file behind --rcfile is for terminals and not read here: it says which run this is, to `ps` and to
                    # `marks`, where an argument would be one of every file that the script sources.
                    ["bash", "--rcfile", str(run.script), f"/dev/fd/{copy}"],
                    env={**self._environment, RUN_DIR: script.folder, RUN_UUID: script.uuid, QUEUE_ID: self._number},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=(copy,),
                    start_new_session=True,  # a group of its own, which cancelling can end as a whole
                )
        finally:
            os.close(copy)

    def _follow(self, script: QueuedScript, started: subprocess.Popen[bytes], started_at: float) -> int:
        process = describe_process(started.pid)
        self._keep(script.run, script=process, started_at=started_at)
        if script.run.cancelled.exists():  # asked between the look above and the line that says whom to signal
            end_group(process)
        code = started.wait()
        self._speak(script, started_at, code, "the script ended without a word of its own")
        end_run(script.uuid, script.run.run_id)  # as Slurm does: what it left would disturb the next measurement
        return code

    def _keep(self, run: RunPaths, **more: Any) -> None:
        """Write down who leads the run; without it, its processes are known by their marks all the same."""
        with contextlib.suppress(OSError):
            run.write(run.process, {"schema": 1, "queue": self._process, "machine": machine_id(), **more})

    def _speak(self, script: QueuedScript, started_at: float, code: int, reason: str) -> None:
        """Write how a script ended that could not do so itself; a negative code is the signal that ended it."""
        owed = (script, _exit_record(script.run, started_at, code, reason))
        with self._one_at_a_time:
            self._owed.append(owed)
        self._settle()

    def _settle(self) -> bool:
        """Write the records that are owed; whether some are left."""
        with self._one_at_a_time:
            self._owed = [(script, record) for script, record in self._owed if not _written(script, record)]
            return bool(self._owed)


def record_job(script: QueuedScript, job_id: str, process: Mapping[str, Any]) -> None:
    """Complete job.json with the queue's number and leader, unless that was done; best effort, for the marks tell as well."""
    run = script.run
    record = read_json(run.job) or {}
    if record.get("uuid") == script.uuid and not record.get("job_id"):
        with contextlib.suppress(OSError):
            run.write(run.job, {**record, "job_id": job_id, "submitted_at": now(), "process": dict(process)})


def detach(run: RunPaths, given: int) -> None:
    """Read from the open file `given` and print to the queue's log: the readers of a terminal's or a caller's pipe wait for its end."""
    try:
        log = append_within(run.root, run.submitit.name, "queue.log")
    except OSError:  # the folder is gone, or another stands in its place: that is no reason to leave the other runs
        log = os.open(os.devnull, os.O_WRONLY)
    for source, target in ((given, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
        os.set_inheritable(target, True)  # where it was that very one, as none was open
    for handle in {given, log} - {0, 1, 2}:
        os.close(handle)


def _printing_to(run: RunPaths, path: Path) -> IO[bytes]:
    return open(append_within(run.root, path.name), "ab")


def _script_of(run: RunPaths) -> bytes | None:
    try:
        return read_regular(run.script)
    except (OSError, ValueError):
        return None


def _written(script: QueuedScript, record: Mapping[str, Any]) -> bool:
    """Whether the record stands in the folder by now, or never will: the folder is gone, or another run's, or closed."""
    run = script.run
    if run.exit.exists() or not script.holds():
        return True
    try:
        half = run.half_exits()  # before ours is begun, which has such a name too
        run.write(run.exit, {**record, "reason": NO_EXIT_WRITTEN} if half else record)
        for path in half:
            path.unlink(missing_ok=True)
    except OSError as error:
        return error.errno not in _PASSING
    return True


def _exit_record(run: RunPaths, started_at: float, code: int, reason: str) -> dict[str, Any]:
    job = read_json(run.job) or {}
    return {
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
    }


def _signal_name(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG")


def main() -> None:
    """Run what standard input tells, and nothing that a file says which others could have put there."""
    # What submitit's own program does not end by either; a script must not inherit that, so it is a handler of its own.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with open(0, "rb", closefd=False) as file:
        scripts = RunScripts.of_json(file.read())
    detach(scripts.scripts[0].run, os.open(os.devnull, os.O_RDONLY))
    scripts()


if __name__ == "__main__":
    main()
