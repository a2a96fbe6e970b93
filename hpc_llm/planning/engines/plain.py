"""PyTorch alone (DDP)."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts, Wanted


def lacks(wanted: Wanted) -> str | None:
    return "holds the whole model on each rank, and cannot split it" if wanted.zero_stage else None


def unrecorded(wanted: Wanted) -> str | None:
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    if wanted.model.quantization is not None and wanted.model.quantization.kind == "int8":
        return "int8 layers were not compared with unrecorded ones yet"
    return None


FACTS = EngineFacts(
    name="plain",
    module="hpc_llm.worker.engines.plain",
    lacks=lacks,
    unrecorded=unrecorded,
    fallback="deepspeed",
)
