"""Let a language model answer the queries of a plan, and measure it.

    python -m hpc_llm.worker.infer_llm --run-dir logs/RUN
    torchrun --nproc-per-node 2 -m hpc_llm.worker.infer_llm --run-dir logs/RUN

What it ends with stands in `main`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from hpc_llm.worker import main as worker

PROGRAM = worker.Program("infer_llm", "hpc_llm.worker.tasks.inference")


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    return worker.main(PROGRAM, argv)


def command() -> NoReturn:
    """Run in a process of its own, and end it."""
    worker.command(PROGRAM)


if __name__ == "__main__":
    command()
