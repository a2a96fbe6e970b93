"""Whether the layers of a plan can multiply in fp8, and where they cannot, what to do. Pure."""

from __future__ import annotations

import re

from hpc_llm.errors import PlanError
from hpc_llm.planning.parts import ModelSetup
from hpc_llm.site.cluster import Cluster, Gpu

_OLDEST = 89
"""Compute capability 8.9."""


def check_fp8(model: ModelSetup, gpu: Gpu, cluster: Cluster) -> None:
    """Raise a PlanError with the way out where the plan asks for fp8 and its GPU or its method cannot have it.

    An architecture that the profile does not know is left to the run, which ends at once where it lacks fp8.
    """
    if not model.fp8:
        return
    if lack := _of_gpu(gpu):
        raise PlanError(
            f"fp8 does not run on {gpu.model} ({gpu.arch}) of cluster {cluster.name}: {lack}. "
            "Leave fp8 out of the method: bf16, or fp16, is what this GPU has."
        )
    if model.quantization or model.peft:
        frozen = "a quantized base" if model.quantization else "LoRA"
        raise PlanError(f"fp8 multiplies weights that train, and {frozen} freezes them. Leave fp8 out of the method.")
    if model.precision != "bf16":
        raise PlanError(
            f"fp8 is the products' alone beside bf16, and the precision is {model.precision}. Leave fp8 out of the method, "
            "or --set precision=bf16."
        )


def _of_gpu(gpu: Gpu) -> str | None:
    """What the GPU lacks, in a clause; None also for the CPU, on which it is emulated."""
    if gpu.vendor == "amd":
        return "it was made for NVIDIA's GPUs alone"
    compute = re.fullmatch(r"sm_(\d+)", gpu.arch or "")
    if compute and int(compute[1]) < _OLDEST:
        return "its units are there from compute capability 8.9 (sm_89) on"
    return None
