"""What a GPU can do, and what that means for a plan: precision, attention, quantization. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_llm.errors import PlanError
from hpc_llm.planning.method import Method
from hpc_llm.planning.parts import ModelSetup, Precision
from hpc_llm.records import metrics
from hpc_llm.site.cluster import Capabilities, Cluster, Gpu

if TYPE_CHECKING:
    from hpc_llm.site.hardware import Hardware


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
    can, name = gpu.capabilities, f"{gpu.model} ({gpu.arch})"
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
