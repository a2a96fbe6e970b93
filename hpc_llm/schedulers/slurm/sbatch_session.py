"""Ask sbatch in a session of its own, so that its answer is not lost with whoever wanted it.

    python -I sbatch_session.py PARENT_PID ASKING_FILE ANSWER_FILE SCRIPT SHA256 COMMAND…

A terminal that is closed takes its whole process group with it, sbatch included, which may have handed the job to Slurm
a moment before. Here sbatch lives on, and its answer is on the disk before anybody reads it.

Beyond the standard library it needs `hpc_llm.text` only, loaded before sbatch is asked: a site's own program may stand in
sbatch's place and print whatever it knows, and others may read the answer.

The script is read once and goes to sbatch by its standard input: others may be able to write where it lies.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # `-I` leaves out PYTHONPATH, by which hpc_llm may have been found
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from hpc_llm.text.secrecy import redacted
from hpc_llm.text.shown import shown

MOST_SAID = 1 << 16
"""Bytes of what sbatch prints: the id of the job, or why there is none, stands at its end."""


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
    done = subprocess.run(command, check=False, input=content, capture_output=True)
    out, err = said(done.stdout), said(done.stderr)
    write(answer, {"returncode": done.returncode, "stdout": out, "stderr": err})
    tell(sys.stdout, out)
    tell(sys.stderr, err)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def said(printed: bytes) -> str:
    """The end of what sbatch printed, without secrets and what steers a terminal; a line whose beginning is cut off is left out."""
    kept = printed[-MOST_SAID:]
    if len(printed) > MOST_SAID:
        kept = kept.partition(b"\n")[2]
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
