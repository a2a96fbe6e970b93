"""estimate(): what a planned run will need, and whether it fits. Pure; needs no torch."""

from __future__ import annotations

from hpc_llm.errors import RequestError
from hpc_llm.estimating.case import Case
from hpc_llm.estimating.device import device_need, is_measured
from hpc_llm.estimating.host import host_capacity, host_need
from hpc_llm.estimating.parts import Estimate, Memory
from hpc_llm.estimating.sizes import sizes_of
from hpc_llm.estimating.step_time import step_time
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import architecture
from hpc_llm.planning.room import room_of
from hpc_llm.site.cluster import Cluster


def estimate(plan: Plan, cluster: Cluster) -> Estimate:
    """What the run of `plan` needs on `cluster`, of whose partitions it takes the plan's.

    A cluster whose GPU is `auto` must be given as this machine is.

    Raises:
        RequestError: the shape of the model cannot be seen from here.
    """
    there = at_partition(cluster, plan)
    memory = memory_of(plan, there)
    room = room_of(plan)
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
        time=step_time(plan, there, memory),
    )


def at_partition(cluster: Cluster, plan: Plan) -> Cluster:
    """The cluster with GPU and node of the plan's partition as its own."""
    partition = cluster.partition(plan.job.partition)
    return cluster.model_copy(update={"gpu": cluster.gpu_of(partition), "node": cluster.node_of(partition)})


def memory_of(plan: Plan, cluster: Cluster) -> Memory:
    """Of one run; GPU and node are the cluster's own."""
    case = case_of(plan)
    notes, unknown = _doubts(case)
    host = host_need(case, host_capacity(case, cluster, cluster.node))
    has_gpu = plan.parallel.gpus_per_node > 0
    return Memory(device=device_need(case, cluster.gpu, unknown) if has_gpu else None, host=host, notes=tuple(notes))


def case_of(plan: Plan) -> Case:
    try:
        shape = architecture(plan.model.name)
    except RequestError as error:
        raise RequestError(f"no estimate: {error}") from None
    return Case(plan, sizes_of(shape))


def _doubts(case: Case) -> tuple[list[str], float]:
    """What was never measured, in words, and by how much that widens the interval."""
    found: list[tuple[str, float]] = []
    if not case.sizes.is_known:
        found.append(("an encoder and a decoder: counted, but no such run was measured", 0.3))
    if not is_measured(case):
        found.append((f"engine {case.plan.engine.name} is not known: as DeepSpeed would", 0.3))
    if case.plan.model.attention == "eager":
        found.append(("eager attention keeps its scores: counted, not measured", 0.15))
    if case.plan.engine.cuda_graph:
        found.append(("a CUDA graph keeps what it works in: counted, not measured", 0.1))
    return [words for words, _ in found], sum(share for _, share in found)
