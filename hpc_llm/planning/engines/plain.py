"""PyTorch alone (DDP)."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts, Wanted


def lacks(wanted: Wanted) -> str | None:
    return "holds the whole model on each rank, and cannot split it" if wanted.zero_stage else None


FACTS = EngineFacts(name="plain", module="hpc_llm.worker.engines.plain", lacks=lacks, fallback="deepspeed")
