"""Starts `forked_ranks.py`: sessions of ranks, one after another, each with a number of ranks of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("forked_ranks.py")


def carry_out(wanted: dict[str, Any], folder: Path) -> Path:
    """Carry out the sessions; what comes of each lies in a folder of its name in `folder`, which is given back."""
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-6000:]
    return folder
