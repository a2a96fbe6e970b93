"""Pretraining: a language model trained on text or synthetic tokens, every step measured."""

from __future__ import annotations

from hpc_llm.planning.tasks.task import TaskKind
from hpc_llm.planning.tasks.training import PLAN_FIELDS, RESULT_FIELDS, packages

KIND = TaskKind(
    name="pretrain",
    worker="hpc_llm.worker.pretrain_llm",
    packages=packages,
    plan_fields=PLAN_FIELDS,
    result_fields=RESULT_FIELDS,
)
