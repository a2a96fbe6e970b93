"""Batch-size search: the largest micro batch that fits and the fastest one, found by short trainings in one job."""

from __future__ import annotations

from hpc_llm.planning.parts import Tuning
from hpc_llm.planning.tasks.task import DATA_FIELDS, TaskKind
from hpc_llm.planning.tasks.training import PLAN_FIELDS, packages

KIND = TaskKind(
    name="tune",
    worker="hpc_llm.worker.pretrain_llm",
    packages=packages,
    # Synthetic tokens fill every sequence, and samples of one's own may be short until a long one comes.
    plan_fields=PLAN_FIELDS - DATA_FIELDS - {"save_every", "keep", "eval_every", "profile_kernels"},
    result_fields=frozenset("search tries".split()),
    workload=Tuning,
    steps=10,
    search="hpc_llm.worker.tune_llm",
)
