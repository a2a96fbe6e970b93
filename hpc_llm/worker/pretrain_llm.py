"""Train a causal language model from a plan, and measure it.

    python -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN
    torchrun --nproc-per-node 2 -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN
    srun python -m hpc_llm.worker.pretrain_llm --run-dir logs/RUN

It also takes the flags of the HPC-II homework's program. What it ends with stands in `main`.
"""

from __future__ import annotations

from functools import partial

from hpc_llm.worker import main as worker
from hpc_llm.worker.homework import parse_arguments, read_request

PROGRAM = worker.Program("pretrain_llm", "hpc_llm.worker.tasks.training", parse_arguments, read_request)
main = partial(worker.main, PROGRAM)
command = partial(worker.command, PROGRAM)

if __name__ == "__main__":
    command()
