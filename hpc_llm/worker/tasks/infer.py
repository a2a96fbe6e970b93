"""Inference by our own decoder, or by vLLM's program where the plan says so."""

from __future__ import annotations

from importlib import import_module

from hpc_llm.worker.baseline import write_metrics
from hpc_llm.worker.result import Record


def train(record: Record) -> None:
    """Answer the queries of the plan and write result.json. Errors are the caller's to report."""
    name = "vllm_bench" if record.plan.engine.name == "vllm" else "inference"
    import_module(f"hpc_llm.worker.tasks.{name}").train(record)
    if record.ranks.rank == 0:
        write_metrics(record)
