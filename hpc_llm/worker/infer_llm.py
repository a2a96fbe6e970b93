"""Let a language model answer the queries of a plan, and measure it.

    python -m hpc_llm.worker.infer_llm --run-dir logs/RUN
    torchrun --nproc-per-node 2 -m hpc_llm.worker.infer_llm --run-dir logs/RUN

It also takes the flags of the LZU project's program of inference. What it ends with stands in `main`.
"""

from __future__ import annotations

from functools import partial

from hpc_llm.worker import main as worker
from hpc_llm.worker.baseline import parse_arguments, read_request

PROGRAM = worker.Program("infer_llm", "hpc_llm.worker.tasks.infer", parse_arguments, read_request)
command = partial(worker.command, PROGRAM)

if __name__ == "__main__":
    command()
