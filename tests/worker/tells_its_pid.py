"""The training program, each rank of which tells its process in `pid-RANK` of the run's folder."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from hpc_llm.worker.pretrain_llm import command


def tell() -> None:
    """Whole at once, as somebody waits for it."""
    told = Path(sys.argv[sys.argv.index("--run-dir") + 1], f"pid-{os.environ.get('RANK', '0')}")
    new = told.with_suffix(".new")
    new.write_text(str(os.getpid()))
    new.rename(told)


def told_in(folder: Path, ranks: int) -> list[int]:
    """The processes of all ranks, once each has told its own."""
    files = [folder / f"pid-{rank}" for rank in range(ranks)]
    deadline = time.monotonic() + 200
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "not all ranks have begun"
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


if __name__ == "__main__":
    tell()
    command()
