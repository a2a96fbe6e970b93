"""DeepSpeed, in whose terms the methods are written."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts, Wanted
from hpc_llm.planning.optimizers import PURE_BF16


def lacks(wanted: Wanted) -> str | None:
    if wanted.optimizer.type in PURE_BF16:
        return f"keeps copies in fp32 of what it trains, and {wanted.optimizer.type} does without"
    return None


FACTS = EngineFacts(
    name="deepspeed",
    module="hpc_llm.worker.engines.deepspeed",
    packages=("deepspeed",),
    heeds=None,
    fallback=None,
    lacks=lacks,
)
