"""Fine-tuning: the training that all tasks share, and what flags of another project's program want to find behind it."""

from __future__ import annotations

from hpc_llm.worker.finetune_flags import write_metrics
from hpc_llm.worker.result import Record
from hpc_llm.worker.tasks import training


def train(record: Record) -> None:
    """Train as the plan of `record` says, and write result.json. Errors are the caller's to report."""
    training.train(record)
    if record.ranks.rank == 0:
        write_metrics(record)
