"""DeepSpeed, in whose terms the methods are written."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts, Wanted
from hpc_llm.planning.optimizers import PURE_BF16


def lacks(wanted: Wanted) -> str | None:
    if wanted.optimizer.type in PURE_BF16:
        return f"keeps copies in fp32 of what it trains, and {wanted.optimizer.type} does without"
    return None


_FURTHER = (
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights",
    "mics_shard_size", "zenflow",
)  # fmt: skip
"""What else ZeRO may do with groups of ranks."""


def unshared(wanted: Wanted) -> str | None:
    zero = wanted.deepspeed.get("zero_optimization") or {}
    set_too = [name for name in _FURTHER if zero.get(name) not in (None, False, 1, -1)]
    return f"was not tried with --tensor-parallel and {set_too[0]}" if set_too else None


FACTS = EngineFacts(
    name="deepspeed",
    module="hpc_llm.worker.engines.deepspeed",
    packages=("deepspeed",),
    heeds=None,
    fallback=None,
    lacks=lacks,
    unshared=unshared,
)
