"""The training program, but rank 1 does not come to the end of its second write."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tells_its_pid import tell

from hpc_llm.worker.engines import state
from hpc_llm.worker.pretrain_llm import command

write, calls = state.write, []


def slow(layout: Any, optimizer: str, folder: Path) -> None:
    calls.append(1)
    if os.environ["RANK"] == "1" and len(calls) == 2:
        (folder / "rank 1 is here").touch()
        time.sleep(300)
    write(layout, optimizer, folder)


state.write = slow
tell()
command()
