"""How long a step takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_llm.estimating.parts import Memory
    from hpc_llm.planning.experiment import Plan
    from hpc_llm.site.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one optimizer step, and what follows from them."""

    step_time_s: float
    tokens_per_second: float
    interval: tuple[float, float]
    """Seconds of a step between which it is expected."""


def step_time(plan: Plan, cluster: Cluster, memory: Memory) -> StepTime | None:
    """None where nothing is known of it. `cluster` is as the job sees it, its GPU and node those of the partition."""
    return None
