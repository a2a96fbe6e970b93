"""memory_of(): what the run of a plan holds in a GPU and on a node's host, and what of it is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpc_llm.estimating.case import Case
from hpc_llm.estimating.device import device_need, peak_moment
from hpc_llm.estimating.doubts import doubts_of
from hpc_llm.estimating.host import host_capacity, host_need
from hpc_llm.estimating.parts import Fit, Memory, Need
from hpc_llm.estimating.sizes import Sizes
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster


def memory_of(plan: Plan, cluster: Cluster, sizes: Sizes) -> Memory:
    """Of one run; GPU and node are the cluster's own."""
    case = Case(plan, sizes)
    doubts = doubts_of(case, cluster)
    unknown = sum(share for _, share in doubts)
    notes = tuple(words for words, _ in doubts)
    if plan.parallel.gpus_per_node == 0:  # the host is the device
        return Memory(device=None, host=_host(case, cluster, unknown, peak_moment(case).terms), notes=notes)
    return Memory(
        device=device_need(case, cluster.gpu, unknown, expands=_expands(plan, cluster)),
        host=_host(case, cluster),
        notes=notes,
    )


def _host(case: Case, cluster: Cluster, *more: Any) -> Need:
    """Where nobody says what the job gets of a node, at least that it cannot be more than there is: what may be more does not
    fit for certain."""
    node = cluster.node
    need = host_need(case, host_capacity(case, cluster, node), *more)
    if need.capacity is not None or node.mem_gb is None:
        return need
    whole = int(node.mem_gb * 1e9)
    of_whole_node = host_need(case, whole, *more)
    return replace(need, of_node=whole) if of_whole_node.verdict is Fit.FITS else of_whole_node


def _expands(plan: Plan, cluster: Cluster) -> bool:
    """Whether torch's allocator is told so; on AMD's GPUs it has no effect yet."""
    own = {**cluster.env.common, **plan.job.env}
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return cluster.gpu.vendor == "nvidia" and any("expandable_segments:True" in own.get(name, "") for name in names)


def at_partition(cluster: Cluster, plan: Plan) -> Cluster:
    """The cluster with GPU and node of the plan's partition as its own."""
    partition = cluster.partition(plan.job.partition)
    return cluster.model_copy(update={"gpu": cluster.gpu_of(partition), "node": cluster.node_of(partition)})
