"""Fine-tuning: the weights of a checkpoint, or adapters on them, trained on data of one's own and evaluated on what was held out."""

from __future__ import annotations

from hpc_llm.planning.tasks.task import TaskKind
from hpc_llm.planning.tasks.training import PLAN_FIELDS, RESULT_FIELDS, packages

KIND = TaskKind(
    name="finetune",
    worker="hpc_llm.worker.finetune_llm",
    packages=packages,
    plan_fields=PLAN_FIELDS,
    result_fields=RESULT_FIELDS,
    lr_schedule="linear",
    evaluates=True,
)
