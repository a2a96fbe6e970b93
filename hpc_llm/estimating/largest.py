"""How far a plan can go: the largest micro batch that fits for certain, and the fewest GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hpc_llm.estimating.memory import memory_of
from hpc_llm.estimating.parts import Fit
from hpc_llm.estimating.sizes import Sizes
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.limits import memory_flag, memory_share, widest
from hpc_llm.planning.limits import sizes as sizes_asked
from hpc_llm.planning.micro_batches import LARGEST
from hpc_llm.site.cluster import Cluster, Node
from hpc_llm.site.schedulers import scheduler_of

_MOST_NODES = 64


Replan = Callable[[Plan], Plan]
"""What a plan is once its changed batch or GPUs were asked for, as another engine may suit them."""


def as_it_is(plan: Plan) -> Plan:
    """For which nothing else changes."""
    return plan


def largest_micro_batch(plan: Plan, cluster: Cluster, sizes: Sizes, replan: Replan = as_it_is) -> int | None:
    """Sequences; 0 where not even one fits for certain, None where nobody says what is there."""
    if memory_of(plan, cluster, sizes).verdict is Fit.UNKNOWN:
        return None
    # A smaller batch may have another engine, which needs more.
    own = plan.batch.micro_batch_size if _fits(plan, cluster, sizes) else 0
    return _last(lambda size: _fits(replan(with_batch(plan, size)), cluster, sizes), own)


def fewest_gpus(plan: Plan, cluster: Cluster, sizes: Sizes, most: int | None, replan: Replan = as_it_is) -> int | None:
    """GPUs with which the plan's micro batch fits for certain, in one node, in at most `most` whole ones or as they are planned; None
    where there are none."""
    per_node, shared, own = cluster.gpu.per_node, plan.parallel.tensor, plan.parallel.world_size

    def fits(nodes: int, gpus: int) -> bool:
        candidate = _with_its_share(_with_gpus(plan, nodes, gpus), plan, cluster)
        return _fits(replan(candidate), cluster, sizes)

    one = (gpus for gpus in range(shared, per_node + 1, shared) if fits(1, gpus))
    found = next(one, None)
    if found is None and per_node % shared == 0:
        nodes = _first(lambda number: fits(number, per_node), 2, _MOST_NODES if most is None else most)
        found = None if nodes is None else nodes * per_node
    if (found is None or found > own) and _fits(plan, cluster, sizes):
        return own
    return found


def most_nodes(cluster: Cluster, plan: Plan) -> int | None:
    """So many whole ones a job of the plan may have; None where nobody says."""
    if not scheduler_of(plan.job.scheduler).several_nodes:
        return 1
    partition = cluster.partition(plan.job.partition)
    asked = sizes_asked(1, cluster.gpu_of(partition).per_node)
    known = ((widest(one, cluster, partition), one.amount) for one in asked)
    return min((limit // amount for limit, amount in known if limit is not None), default=None)


def with_batch(plan: Plan, size: int) -> Plan:
    """The plan with micro batches of that size."""
    return replace(plan, batch=replace(plan.batch, micro_batch_size=size))


def _fits(plan: Plan, cluster: Cluster, sizes: Sizes) -> bool:
    return memory_of(plan, cluster, sizes).verdict is Fit.FITS


def _last(holds: Callable[[int], bool], low: int) -> int:
    """The largest number up to LARGEST, or `low`, for which it holds, as it does for all from `low` on."""
    high = low + 1
    while high <= LARGEST and holds(high):
        low, high = high, min(2 * high, LARGEST + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest number from `low` to `high` for which it holds, as it does for some power of two or `high` where for any.

    Of those between two powers each is asked: what is held need not fall evenly.
    """
    asked, size = low - 1, low
    while asked < high:
        if holds(size):
            return next((number for number in range(asked + 1, size) if holds(number)), size)
        asked, size = size, min(2 * size, high)
    return None


def _with_gpus(plan: Plan, nodes: int, gpus: int) -> Plan:
    world = nodes * gpus
    groups = world // plan.parallel.tensor
    parallel = replace(
        plan.parallel, nodes=nodes, gpus_per_node=gpus, tasks_per_node=gpus, world_size=world, data=groups
    )
    return replace(plan, parallel=parallel)


def _with_its_share(changed: Plan, plan: Plan, cluster: Cluster) -> Plan:
    """With the memory that goes with its GPUs, where the plan asks for what goes with its own and for nothing else."""
    style, job = cluster.request.memory, plan.job
    has, gets = (_share(style, cluster.node, one.parallel.gpus_per_node) for one in (plan, changed))
    return replace(changed, job=replace(job, mem=gets)) if job.mem is not None and job.mem == has else changed


def _share(style: str, node: Node, gpus: int) -> str | None:
    """The value of the site's flag for memory."""
    size = memory_share(style, node, gpus)
    return None if size is None else memory_flag(size)
