"""What a GPU can do, and what that means for a plan: precision, attention, quantization, fp8. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError
from hpc_llm.planning.method import Method
from hpc_llm.planning.parts import BatchShape, ModelSetup, Precision
from hpc_llm.records import metrics
from hpc_llm.site.cluster import Capabilities, Cluster, Gpu

if TYPE_CHECKING:
    from hpc_llm.planning.tasks import TaskKind
    from hpc_llm.site.hardware import Hardware

_FP8_SINCE = 89
"""Compute capability 8.9."""
_WITHOUT = "Leave fp8 out of the method."


def actual_gpu(gpu: Gpu, hardware: Hardware | None) -> Gpu:
    """The profile's GPU, or for `vendor: auto` what this machine has.

    A GPU that the table of peaks does not know gets the capabilities of its generation and no peak.
    """
    if gpu.vendor != "auto":
        return gpu
    if hardware is None or hardware.vendor == "none" or not hardware.gpu_model:
        return Gpu(vendor="none")

    compute = int(hardware.arch.removeprefix("sm_")) if hardware.arch and hardware.arch.startswith("sm_") else None
    modern = compute is None or compute >= 80
    capabilities = Capabilities(
        bf16=modern, tf32=modern and hardware.vendor == "nvidia", flash_attention_2=modern,
        int8=compute is None or compute >= 75, nf4=True,
    )  # fmt: skip
    peaks = {p: metrics.peak_flops(hardware.gpu_model, p) for p in ("bf16", "fp16", "fp32", "fp8")}
    return Gpu(
        vendor="amd" if hardware.vendor == "amd" else "nvidia",
        model=hardware.gpu_model,
        arch=hardware.arch or "unknown",
        memory_gib=hardware.memory_gib or 0.0,
        per_node=hardware.gpus,
        capabilities=capabilities,
        peak_tflops={p: value / 1e12 for p, value in peaks.items() if value},  # type: ignore[misc]
    )


_LONG = 4096
"""Tokens of a micro batch from which on the GPU has more to do than the host to ask for."""


def allocator_env(task: TaskKind, cluster: Cluster, gpu: Gpu, batch: BatchShape) -> tuple[dict[str, str], str]:
    """What a job's environment tells torch's allocator of a GPU that was found when planning, and why; a profile that knows its
    GPUs says it by itself.

    Blocks that grow leave no holes: a 7B under q takes 5.99 GiB where it took 6.32, at the same step time (H100, torch 2.11). Steps of
    16 384 tokens became 3 to 9 % longer at the same clock. vLLM's own pools do not bear them, so what answers goes without.
    """
    if not task.trains or task.search is not None or cluster.gpu.vendor != "auto" or gpu.vendor != "nvidia":
        return {}, "not set"
    if batch.micro_batch_size * batch.sequence_length >= _LONG:
        return {}, "not set: segments that grow make the steps of large batches longer"
    grows = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return grows, "computed: the memory of an NVIDIA GPU without holes"


def choose_precision(method: Method, gpu: Gpu) -> tuple[Precision, str]:
    """The precision and, where the method's wish cannot be met, the sentence that says so."""
    wish: Precision = "bf16" if method.precision == "auto" else method.precision
    if gpu.vendor == "none":
        if wish == "fp16":
            return "bf16", f"fp16 becomes bf16: the CPU cannot train in fp16 (method {method.name})"
        return wish, ""
    assert gpu.capabilities is not None  # a Gpu with a vendor has them, its validator says so
    if wish == "bf16" and not gpu.capabilities.bf16:
        return "fp16", f"bf16 becomes fp16: {gpu.model} ({gpu.arch}) has no bf16 units"
    return wish, ""


def check_capabilities(model: ModelSetup, stage: int, gpu: Gpu, cluster: Cluster) -> None:
    """Raise a PlanError with the alternative where the plan asks of the GPU what it cannot do; `stage` is ZeRO's."""
    can, name = gpu.capabilities if gpu.vendor != "none" else None, f"{gpu.model} ({gpu.arch})"
    if model.attention == "flash_attention_2":
        if gpu.vendor == "none":
            raise PlanError("FlashAttention-2 runs on GPUs only. Use sdpa: leave f out, or --set attention=sdpa.")
        if can and not can.flash_attention_2:
            raise PlanError(
                f"FlashAttention-2 does not run on {name} of cluster {cluster.name}. "
                "Use PyTorch's fused attention instead: leave f out, or --set attention=sdpa."
            )
    if model.quantization and can:
        kind = model.quantization.kind
        possible = can.int8 if kind == "int8" else can.nf4
        if not possible:
            other = "nf4" if kind == "int8" and can.nf4 else None
            advice = f"Use --set quantization.kind={other}." if other else "Choose a method without q."
            raise PlanError(f"bitsandbytes {kind} does not run on {name} of cluster {cluster.name}. {advice}")
    if model.quantization and stage == 3 and not model.peft:
        raise PlanError(
            "a quantized base under ZeRO-3 has no trainable linear layers to split. Use qlora with z3, or q alone."
        )
    if model.precision == "bf16" and can and not can.bf16:
        raise PlanError(f"bf16 does not run on {name} of cluster {cluster.name}. Use --set precision=fp16.")
    if model.precision == "fp16" and gpu.vendor == "none":
        raise PlanError("fp16 does not train on a CPU. Use --set precision=bf16 or fp32.")
    if model.fp8:
        _check_fp8(model, gpu, cluster)


def _check_fp8(model: ModelSetup, gpu: Gpu, cluster: Cluster) -> None:
    lacks = _lacks_fp8(gpu)
    if lacks is not None:
        raise PlanError(f"fp8 does not run on {gpu.model} ({gpu.arch}) of cluster {cluster.name}: {lacks}. {_WITHOUT}")
    if model.quantization or model.peft:
        frozen = "a quantized base" if model.quantization else "LoRA"
        raise PlanError(f"fp8 multiplies weights that train, and {frozen} freezes them. {_WITHOUT}")
    if model.precision != "bf16":
        raise PlanError(
            f"fp8 goes with weights in bf16, and the precision is {model.precision}. Leave fp8 out of the method, "
            "or --set precision=bf16."
        )


def _lacks_fp8(gpu: Gpu) -> str | None:
    """Why the GPU cannot, in a clause; None for the CPU, which emulates it, and for one of which the run has to find out."""
    if gpu.vendor == "amd":
        return "it was made for NVIDIA's GPUs alone"
    compute = re.fullmatch(r"sm_(\d+)", gpu.arch or "")
    if compute and int(compute[1]) < _FP8_SINCE:
        return "NVIDIA's GPUs have it from compute capability 8.9 (sm_89) on"
    return None
