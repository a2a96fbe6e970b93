"""An sbatch that is slow, loses its answer or dies, first on PATH of a command; the jobs that it submits are real.

What it does is in its environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from scratch_site import executable
from scratch_slurm import search_path

TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"

SBATCH = """\
#!/bin/sh
: > "$CHAOS_MARKS/asked"
sleep "$CHAOS_BEFORE"
[ "$CHAOS_END" != killed-before ] || kill -9 $$
[ "$CHAOS_END" != timed-out-before ] || { echo "$CHAOS_TIMED_OUT" >&2; exit 1; }
answer=$("$CHAOS_REAL" "$@") || exit
: > "$CHAOS_MARKS/accepted"
sleep "$CHAOS_AFTER"
case $CHAOS_END in
  killed) kill -9 $$ ;;
  timed-out) echo "$CHAOS_TIMED_OUT" >&2; exit 1 ;;
  silent) exit 0 ;;
  garbled) echo "welcome to the new login node"; exit 0 ;;
esac
printf '%s\\n' "$answer"
"""

ENDS_AFTER_ACCEPTING = ("killed", "timed-out", "silent", "garbled")
ENDS_BEFORE_ACCEPTING = ("killed-before", "timed-out-before")


@dataclass(frozen=True, kw_only=True)
class FaultySbatch:
    """One way for sbatch to be; `folder` is where its file lies and its marks come, `path` the PATH after it."""

    folder: Path
    path: str
    before_s: float = 0.0
    """How long it takes until Slurm is asked."""
    after_s: float = 0.0
    """How long it takes from Slurm's answer to its own."""
    end: str = "answers"

    @property
    def environ(self) -> dict[str, str]:
        """What a command needs in its environment to meet this sbatch."""
        return {
            "PATH": f"{self._install()}{os.pathsep}{self.path}",
            "CHAOS_REAL": str(shutil.which("sbatch", path=search_path())),
            "CHAOS_TIMED_OUT": TIMED_OUT,
            "CHAOS_MARKS": str(self.folder),
            "CHAOS_BEFORE": f"{self.before_s:.3f}",
            "CHAOS_AFTER": f"{self.after_s:.3f}",
            "CHAOS_END": self.end,
        }

    def wait_for(self, mark: str, process: subprocess.Popen[str]) -> None:
        """Return once Slurm is `asked` or has `accepted`, or when the command has ended: it may never come so far."""
        while not (self.folder / mark).exists() and process.poll() is None:
            time.sleep(0.005)

    def _install(self) -> Path:
        executable(self.folder / "sbatch", SBATCH)
        return self.folder
