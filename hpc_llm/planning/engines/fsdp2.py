"""PyTorch's fully sharded data parallel."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts, Wanted
from hpc_llm.planning.optimizers import PURE_BF16


def lacks(wanted: Wanted) -> str | None:
    if wanted.zero_stage != 3:
        return "splits the parameters among all ranks, as ZeRO-3 does, and nothing less"
    zero = wanted.deepspeed["zero_optimization"]
    if zero.get("offload_optimizer") or zero.get("offload_param"):
        return "keeps everything on the device, and cannot offload"
    if wanted.optimizer.type in PURE_BF16:
        return f"keeps in fp32 what it trains, and {wanted.optimizer.type} does without"
    quantization = wanted.model.quantization
    if quantization is not None and quantization.kind == "int8":
        return "splits no weights of 8 bits"
    return None


FACTS = EngineFacts(name="fsdp2", module="hpc_llm.worker.engines.fsdp2", lacks=lacks, fallback="deepspeed")
