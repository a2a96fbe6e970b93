"""memory_of(): what the run of a plan holds in a GPU and on a node's host, and what of it is not known."""

from __future__ import annotations

from hpc_llm.estimating.case import Case
from hpc_llm.estimating.device import device_need, is_measured, peak_moment
from hpc_llm.estimating.host import host_capacity, host_need
from hpc_llm.estimating.parts import Memory
from hpc_llm.estimating.sizes import Sizes
from hpc_llm.planning.experiment import Plan
from hpc_llm.site.cluster import Cluster


def memory_of(plan: Plan, cluster: Cluster, sizes: Sizes) -> Memory:
    """Of one run; GPU and node are the cluster's own."""
    case = Case(plan, sizes)
    doubts = _doubts(case, cluster)
    unknown = sum(share for _, share in doubts)
    capacity = host_capacity(case, cluster, cluster.node)
    notes = tuple(words for words, _ in doubts)
    if plan.parallel.gpus_per_node == 0:  # the host is the device
        return Memory(device=None, host=host_need(case, capacity, unknown, peak_moment(case).terms), notes=notes)
    return Memory(
        device=device_need(case, cluster.gpu, unknown, expands=_expands(plan, cluster)),
        host=host_need(case, capacity),
        notes=notes,
    )


def _expands(plan: Plan, cluster: Cluster) -> bool:
    """Whether torch's allocator is told so; on AMD's GPUs it has no effect yet."""
    own = {**cluster.env.common, **plan.job.env}
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return cluster.gpu.vendor == "nvidia" and any("expandable_segments:True" in own.get(name, "") for name in names)


def _doubts(case: Case, cluster: Cluster) -> list[tuple[str, float]]:
    """What was never measured, in words, and by how much that widens the interval."""
    found: list[tuple[str, float]] = []
    plan = case.plan
    if not plan.parallel.gpus_per_node:
        found.append(("a run on the CPU: counted as on a GPU, few such runs were measured", 0.2))
    if case.sizes.doubt:
        found.append((case.sizes.doubt, 0.3))
    if not is_measured(case):
        found.append((f"engine {plan.engine.name}: counted as if it were DeepSpeed", 0.3))
    if plan.model.attention == "eager":
        found.append(("eager attention: the scores that it keeps are counted, no such run was measured", 0.15))
    if plan.model.precision == "fp32":
        found.append(("fp32: counted, no such run was measured", 0.15))
    elif plan.model.precision == "fp16" and case.stage < 3 and not case.is_quantized:
        found.append(("fp16 without ZeRO-3: counted as bf16, no such run was measured", 0.08))
    if case.accumulates:
        found.append(("gradients of several micro batches: counted, no such run was measured", 0.03))
    if plan.engine.cuda_graph:
        found.append(("a CUDA graph keeps what it works in: counted, no such run was measured", 0.1))
    if plan.model.quantization is not None and plan.model.quantization.kind == "int8":
        found.append(("int8 layers: counted, no such run was measured", 0.15))
    if plan.parallel.gpus_per_node and cluster.gpu.vendor == "amd":
        found.append(("AMD GPUs: counted as on NVIDIA's, where the runs were measured", 0.05))
    if plan.engine.name == "fsdp2" and (case.is_adapted or case.is_quantized):
        found.append(("frozen weights under FSDP2: counted, no such run was measured", 0.15))
    if case.is_quantized and case.stage == 3:
        found.append(("packed weights under ZeRO-3: counted, no such run was measured", 0.15))
    if plan.parallel.tensor > 1 or plan.parallel.pipeline > 1:
        found.append(("layers shared among ranks: counted as if each rank had them whole", 0.3))
    return found
