"""Make tokens of the data that a plan names, in the folder that it names.

    python -m hpc_llm.worker.prepare_data --run-dir logs/RUN

What it ends with stands in `main`.
"""

from __future__ import annotations

from hpc_llm.worker.main import Program, command

PROGRAM = Program("prepare_data", "hpc_llm.worker.tasks.prepare")

if __name__ == "__main__":
    command(PROGRAM)
