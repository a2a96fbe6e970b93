"""estimate(): what a planned run will need, and whether it fits. Pure; needs no torch."""

from __future__ import annotations

from hpc_llm.errors import RequestError
from hpc_llm.estimating.largest import Replan, as_it_is, fewest_gpus, largest_micro_batch, most_nodes
from hpc_llm.estimating.memory import at_partition, memory_of
from hpc_llm.estimating.parts import Estimate
from hpc_llm.estimating.search_time import search_time
from hpc_llm.estimating.shapes import sizes_in
from hpc_llm.estimating.step_time import step_time, unknown_because
from hpc_llm.estimating.time_constants import Calibration
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.room import room_of
from hpc_llm.planning.tasks import find
from hpc_llm.site.cluster import Cluster

_NO_LIMIT = "nobody says how much memory there is, so that the trainings of the search cannot be counted"


def estimate(
    plan: Plan, cluster: Cluster, calibration: Calibration | None = None, replan: Replan | None = None
) -> Estimate:
    """What the run of `plan` needs on `cluster`, of whose partitions it takes the plan's.

    A cluster whose GPU is `auto` must be given as this machine is. `calibration` is what its own runs say of its speed. `replan` gives
    the plan that another batch or more GPUs would have; without it all else stays, the engine too.

    Raises:
        RequestError: the shape of the model cannot be seen from here.
    """
    if not find(plan.task).trains:
        raise RequestError(f"task {plan.task} trains nothing, and what training needs is all that is estimated.")
    there, sizes, room = at_partition(cluster, plan), sizes_in(plan), room_of(plan)
    memory = memory_of(plan, there, sizes)
    has_gpu = plan.parallel.gpus_per_node > 0
    if find(plan.task).search is None:
        time, again = step_time(plan, there, calibration=calibration), replan or as_it_is
    else:  # all its trainings have the engine of the first
        time, again = search_time(plan, there, sizes, calibration), as_it_is
    return Estimate(
        cluster=plan.cluster,
        method=plan.method,
        model=plan.model.name,
        gpu=plan.gpu.model,
        gpus=plan.parallel.nodes * plan.parallel.gpus_per_node,
        micro_batch_size=plan.batch.micro_batch_size,
        sequence_length=plan.batch.sequence_length,
        memory=memory,
        checkpoint=room.checkpoint if room else None,
        disk=room.most if room else None,
        largest_micro_batch=largest_micro_batch(plan, there, sizes, again),
        fewest_gpus=fewest_gpus(plan, there, sizes, most_nodes(cluster, plan), again) if has_gpu else None,
        time=time,
        untimed=None if time else unknown_because(plan) or _NO_LIMIT,
    )
