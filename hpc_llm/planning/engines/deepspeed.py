"""DeepSpeed, in whose terms the methods are written."""

from __future__ import annotations

from hpc_llm.planning.engines.facts import EngineFacts

FACTS = EngineFacts(
    name="deepspeed", module="hpc_llm.worker.engines.deepspeed", packages=("deepspeed",), heeds=None, fallback=None
)
