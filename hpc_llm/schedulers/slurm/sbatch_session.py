"""Ask sbatch in a session of its own, so that its answer is not lost with whoever wanted it.

    python -I sbatch_session.py PARENT_PID ASKING_FILE ANSWER_FILE SCRIPT SHA256 COMMAND…

A terminal that is closed takes its whole process group with it, sbatch included, which may have handed the job to Slurm
a moment before. Here sbatch lives on, and its answer is on the disk before anybody reads it.

Beyond the standard library it needs `hpc_llm.text` only, loaded before sbatch is asked: a site's own program may stand in
sbatch's place and print whatever it knows, and others may read the answer.

The script is read once and goes to sbatch by its standard input: others may be able to write where it lies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # `-I` leaves out PYTHONPATH, by which hpc_llm may have been found
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from hpc_llm.text.secrecy import redacted
from hpc_llm.text.shown import shown

MOST_SAID = 1 << 16
"""Bytes that are kept of the beginning, and of the end, of what sbatch prints: a site's own program may print whatever it likes."""
GRACE_S = 3.0
"""So long sbatch's output is read on when it has ended: what it has left running may hold it open for ever."""
MOST_READ = 1 << 29
"""Bytes of what it prints after which it is ended: no sbatch prints so much, and one that prints for ever never ends by itself."""
LONGEST_S = 900.0
"""So long it may take: a controller that is busy answers within minutes."""
_PIECE = 1 << 16
_LOOK_S = 0.2


def main(parent: int, asking: str, answer: str, script: str, digest: str, command: list[str]) -> int:
    """Run `command`; its exit code. Nothing is run where the parent has gone: nobody would count on it any more."""
    if os.getpid() != os.getsid(0):
        os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Whoever finds the parent dead and no record of this process knows that sbatch was never asked.
    if not write(asking, myself()):
        tell(sys.stderr, f"not asked: {asking} cannot be written\n")
        return 1
    if os.getppid() != parent:
        write(answer, {"returncode": 1, "stdout": "", "stderr": "not asked: the command that wanted it had ended"})
        return 1
    content = read(script)
    if hashlib.sha256(content).hexdigest() != digest:
        why = f"not asked: {script} is not what was to be submitted"
        write(answer, {"returncode": 1, "stdout": "", "stderr": why})
        tell(sys.stderr, f"{why}\n")
        return 1
    code, out, err = run(command, content)
    write(answer, {"returncode": code, "stdout": out, "stderr": err})
    tell(sys.stdout, out)
    tell(sys.stderr, err)
    return code if code >= 0 else 128 - code


def run(command: list[str], given: bytes) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, which ends with its own process: not with what that has started.

    One that prints or takes without an end is ended, and its exit code is that of a signal: whether it has submitted anything
    before, Slurm has to be asked, as for any answer that was lost.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
    out, err = Printed(process.stdout), Printed(process.stderr)
    works: list[tuple[Any, tuple[Any, ...]]] = [(give, (process.stdin, given)), (out.collect, ()), (err.collect, ())]
    threads = [threading.Thread(target=work, args=words, daemon=True) for work, words in works]
    for thread in threads:
        thread.start()
    code = ended(process, lambda: out.size + err.size > MOST_READ)
    deadline = time.monotonic() + GRACE_S
    for thread in threads[1:]:
        thread.join(max(0.0, deadline - time.monotonic()))
    return code, out.said(), err.said()


def ended(process: subprocess.Popen[bytes], is_too_much: Callable[[], bool]) -> int:
    """The exit code of a command, once it has ended or was ended."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline and not is_too_much():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_S)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    process.kill()
    code = process.wait()
    return code if code < 0 else -signal.SIGTERM


def give(stream: Any, content: bytes) -> None:
    """Write it for a command, which need not read it."""
    left = memoryview(content)
    with contextlib.suppress(OSError), stream:
        while left:
            left = left[stream.write(left) :]


class Printed:
    """The beginning and the end of what a command prints, however much that is."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._head, self._tail = b"", b""
        self.size = 0

    def collect(self) -> None:
        """Read until nobody can print any more."""
        with contextlib.suppress(OSError):
            while piece := os.read(self._stream.fileno(), _PIECE):
                with self._lock:
                    self._add(piece)

    def _add(self, piece: bytes) -> None:
        self.size += len(piece)
        room = MOST_SAID - len(self._head)
        self._head += piece[:room]
        self._tail = (self._tail + piece[room:])[-MOST_SAID:]

    def said(self) -> str:
        """It without secrets and what steers a terminal; lines that are cut where something is left out are left out as well."""
        with self._lock:
            kept = self._head + self._tail
            if self.size > len(kept):
                kept = self._head.rpartition(b"\n")[0] + b"\n[...]\n" + self._tail.partition(b"\n")[2]
        return redacted(shown(kept.decode(errors="replace")))


def myself() -> dict[str, Any]:
    """What identifies this process, as `hpc_llm.schedulers.process` describes one."""
    try:
        namespace: str | None = os.readlink("/proc/self/ns/pid")
        with open(f"/proc/{os.getpid()}/stat") as file:
            ticks: int | None = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot: str | None = file.read().strip()
    except (OSError, ValueError):
        ticks, boot, namespace = None, None, None
    host = socket.gethostname()
    return {"pid": os.getpid(), "start_ticks": ticks, "host": host, "boot_id": boot, "pid_namespace": namespace}


def read(path: str) -> bytes:
    """The file's bytes; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def write(path: str, record: dict[str, Any]) -> bool:
    """Leave a record whole or not at all, and say whether; a full disk must not keep the answer from the parent."""
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        with open(temporary, "x", encoding="utf-8") as file:  # never through a link that somebody put there
            json.dump({"schema": 1, **record}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        return False
    return True


def tell(stream: Any, text: str) -> None:
    """Print for the parent, which may have gone."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5], sys.argv[6:]))
