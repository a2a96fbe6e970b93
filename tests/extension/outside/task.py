"""A task of another package: it trains as `pretrain` does and says goodbye, which its own setting decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpc_llm.planning.parts import Training
from hpc_llm.planning.tasks import TaskKind, find

PRETRAIN = find("pretrain")


@dataclass(frozen=True, kw_only=True)
class Polite(Training):
    """What a run of it has besides what all training has."""

    goodbye: str = "bye"


KIND = TaskKind(
    name="polite",
    worker="their_task",
    packages=PRETRAIN.packages,
    plan_fields=PRETRAIN.plan_fields,
    result_fields=PRETRAIN.result_fields,
    workload=Polite,
)


def train(record: Any) -> None:
    from hpc_llm.worker.tasks import training

    training.train(record)
    print(f"{record.plan.workload.goodbye} from {__file__}")


if __name__ == "__main__":
    from hpc_llm.worker.main import Program, command

    command(Program("polite", "their_task"))
