"""Preparing data: sources become tokens in flat files, on the login node or in a job without a GPU."""

from __future__ import annotations

from hpc_llm.corpus.key import BYTES, tokenizer_digest
from hpc_llm.corpus.sources import HUB, PARQUET, PDF, source_files
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.tasks.task import READING_FIELDS, TaskKind

_READERS = {PARQUET: "pyarrow", PDF: "pypdf", HUB: "datasets"}
"""What reads a kind of source that the standard library does not."""


def packages(plan: Plan) -> tuple[str, ...]:
    """transformers where the model has a tokenizer, and what reads the kinds of files that there are."""
    kinds = {file.kind for file in source_files(plan.training.data)}
    tokenizer = () if tokenizer_digest(plan.model.name) == BYTES else ("transformers",)
    return (*tokenizer, *(package for kind, package in _READERS.items() if kind in kinds))


KIND = TaskKind(
    name="prepare",
    worker="hpc_llm.worker.prepare_data",
    packages=packages,
    plan_fields=READING_FIELDS | frozenset(("model", "caches")),
    result_fields=frozenset(("corpus", "splits")),
    is_on_host=True,
)
