"""With which micro batch a search begins: the largest one that is estimated to fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpc_llm.errors import RequestError

if TYPE_CHECKING:
    from hpc_llm.planning.experiment import Plan, PlanWithOrigins
    from hpc_llm.site.cluster import Cluster

_OF_A_SIZE = 4
"""Tries of one size at most: short and to confirm it, each twice where it fails."""


def searches(plan: Plan) -> bool:
    """Whether the run is a search, of which the plan says only where it begins."""
    from hpc_llm.planning.tasks import find

    return find(plan.task).search is not None


def bounds(plan: Plan, cluster: Cluster) -> str:
    """How many trainings a search starts at most, and how long it may take, in a line: no longer than its job or its partition allows."""
    from hpc_llm.planning.micro_batches import micro_batches_of
    from hpc_llm.site.slurm_time import format_time

    asked, sizes = plan.tuning, micro_batches_of(plan)
    longest = asked.try_time_s * max(asked.confirm_steps, asked.steps) // asked.steps
    whole = plan.job.time_s
    tries = min(asked.most_tries, _OF_A_SIZE * sizes.number * max(1, len(asked.lengths)))
    partition, most = cluster.partition(plan.job.partition), tries * longest
    ended = f"the job's time of {format_time(whole)} ends it" if whole else f"at most {format_time(most)}"
    if partition is not None and not whole:
        most = min(most, partition.max_time_s)
        ended = f"at most {format_time(most)}, and no longer than the scheduler gives a job of {partition.name} that asks for no --time"
    memory = "the GPU's memory" if plan.parallel.gpus_per_node else "the memory of this machine"
    kept = (
        "" if sizes.share is None else f"of the {sizes.number} sizes up to {sizes.largest} that keep the global batch, "
    )
    return (
        f"a search of at most {tries} short trainings, {kept}up to the size that {memory} does not hold: {ended}; one that hangs is "
        f"ended after {format_time(asked.try_time_s)}, a longer one that confirms after {format_time(longest)} "
        "(--set most_tries=N, try_time_s=SECONDS, --time)"
    )


def least_of(plan: Plan) -> Plan:
    """What a run needs at least: of a search its smallest micro batch, of all else the plan itself."""
    from hpc_llm.planning.micro_batches import starting_at

    return starting_at(plan, 1) if searches(plan) else plan


def with_first_size(planned: PlanWithOrigins, cluster: Cluster) -> PlanWithOrigins:
    """The plan of a search with the estimated micro batch as its first, where nobody names one and GPUs limit it."""
    from hpc_llm.planning.micro_batches import micro_batches_of, starting_at

    plan, origin = planned.plan, planned.origins.get("micro_batch_size", "")
    is_said = origin != "default" and not origin.startswith(("cluster ", "computed"))
    if not searches(plan) or is_said or not plan.parallel.gpus_per_node:
        return planned
    found = _estimated(plan, cluster)
    size = micro_batches_of(plan).at_most(found) if found else None
    if size is None:
        return planned
    why = "estimated: the largest that fits, with which the search begins"
    names = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size")
    return replace(planned, plan=starting_at(plan, size), origins=planned.origins | dict.fromkeys(names, why))


def _estimated(plan: Plan, cluster: Cluster) -> int | None:
    """Sequences; None where the shape of the model cannot be seen from here, or nobody says what a GPU has."""
    from hpc_llm.api.fit import as_it_is_here
    from hpc_llm.estimating.largest import largest_micro_batch
    from hpc_llm.estimating.memory import at_partition
    from hpc_llm.estimating.shapes import sizes_in

    try:
        return largest_micro_batch(plan, at_partition(as_it_is_here(cluster), plan), sizes_in(plan))
    except RequestError:
        return None
