"""Fine-tune a language model from a plan, evaluate it, and measure both.

    python -m hpc_llm.worker.finetune_llm --run-dir logs/RUN
    torchrun --nproc-per-node 2 -m hpc_llm.worker.finetune_llm --run-dir logs/RUN

It also takes the flags of the LZU project's programs of fine-tuning. What it ends with stands in `main`.
"""

from __future__ import annotations

from functools import partial

from hpc_llm.worker import main as worker
from hpc_llm.worker.finetune_flags import parse_arguments, read_request

PROGRAM = worker.Program("finetune_llm", "hpc_llm.worker.tasks.finetune", parse_arguments, read_request)
main = partial(worker.main, PROGRAM)
command = partial(worker.command, PROGRAM)

if __name__ == "__main__":
    command()
