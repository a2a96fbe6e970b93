"""What of a run was never measured, in words, and by how much that widens its interval."""

from __future__ import annotations

from collections.abc import Callable

from hpc_llm.estimating.case import Case
from hpc_llm.planning.engines import offload_place
from hpc_llm.site.cluster import Cluster

_KNOWN = ("deepspeed", "plain", "fsdp2", "flat")
"""Engines whose terms are counted."""
_COUNTED = "counted, no such run was measured"


def doubts_of(case: Case, cluster: Cluster) -> list[tuple[str, float]]:
    """Words and shares of the peak."""
    found = [(case.sizes.doubt, 0.3)] if case.sizes.doubt else []
    if case.plan.engine.name not in _KNOWN:
        found.append((f"engine {case.plan.engine.name}: counted as if it were DeepSpeed", 0.3))
    if case.plan.parallel.gpus_per_node and cluster.gpu.vendor == "amd":
        found.append(("AMD GPUs: counted as on NVIDIA's, where the runs were measured", 0.05))
    return [*found, *((words, share) for is_so, words, share in _DOUBTS if is_so(case))]


def _is_fp16(case: Case) -> bool:
    return case.plan.model.precision == "fp16" and (case.stage < 3 or case.plan.engine.name == "fsdp2")


def _splits_frozen(case: Case) -> bool:
    frozen = case.is_adapted or case.is_quantized
    return frozen and (case.plan.engine.name == "fsdp2" or (case.is_quantized and case.stage == 3))


def _is_partial(case: Case) -> bool:
    return case.offloads("optimizer") and case.zero["offload_optimizer"].get("ratio", 1) < 1


def _is_on_disk(case: Case) -> bool:
    return "nvme" in (offload_place(case.plan.engine.deepspeed, what) for what in ("optimizer", "param"))


def _is_further_zero(case: Case) -> bool:
    keys = ("zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights", "zenflow")
    return case.zero.get("zero_hpz_partition_size", 1) > 1 or any(case.zero.get(key) for key in keys)


_DOUBTS: tuple[tuple[Callable[[Case], bool], str, float], ...] = (
    (
        lambda case: not case.plan.parallel.gpus_per_node,
        "a run on the CPU: few were measured, and torch's build for CUDA takes up to 0.5 GB a rank more than is counted",
        0.2,
    ),
    (
        lambda case: case.plan.model.attention == "eager",
        "eager attention keeps its scores: four such runs were measured",
        0.05,
    ),
    (
        lambda case: case.plan.model.precision == "fp32",
        "fp32: four such runs were measured, and took up to 5 % more",
        0.15,
    ),
    (_is_fp16, "fp16: counted as bf16, eight such runs were measured", 0.08),
    (lambda case: case.accumulates, f"gradients of several micro batches: {_COUNTED}", 0.03),
    (
        lambda case: case.plan.engine.name == "flat" and case.offloads("optimizer"),
        f"flat units whose states are on the host: {_COUNTED}",
        0.1,
    ),
    (
        lambda case: case.plan.model.fp8 and not case.plan.engine.compiled_layers,
        "layers that multiply in fp8 and are not compiled: counted as in bf16, no such run was measured",
        0.1,
    ),
    (lambda case: case.is_int8, "int8 layers: seven such runs were measured", 0.05),
    (_splits_frozen, "frozen weights that are split: ten such runs were measured", 0.03),
    (_is_partial, "a part of the optimizer on the host: few such runs were measured", 0.06),
    (_is_on_disk, "a disk to offload to: no such run was measured", 0.5),
    (_is_further_zero, "what ZeRO++ and ZenFlow keep besides: not counted", 0.3),
    (
        lambda case: case.plan.parallel.tensor > 1,
        "layers shared among ranks: four such runs were measured",
        0.03,
    ),
)
