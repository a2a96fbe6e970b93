"""The training program, on a disk on which a record takes half a second to be written; each rank tells who it is in `pid-RANK`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tells_its_pid import tell

from hpc_llm.records.run import RunPaths
from hpc_llm.worker.pretrain_llm import command

write = RunPaths.write


def slow(self: RunPaths, path: Path, value: Any) -> None:
    time.sleep(0.5)
    write(self, path, value)


RunPaths.write = slow  # type: ignore[method-assign]
tell()
command()
