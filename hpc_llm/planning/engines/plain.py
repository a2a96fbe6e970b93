"""PyTorch alone (DDP)."""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.planning.encoder_decoder import MODEL_TYPES
from hpc_llm.planning.engines.facts import KNOWN_FAMILIES, Chosen, EngineFacts, Wanted

ROUNDS = "which rounds to fp8 where a number is made"
"""Why layers are compiled that multiply in fp8."""
MASKED = "samples of an encoder and a decoder come with masks of their own"
"""Why their steps are not recorded: a replay would go the way of the samples that were."""
EAGER = "attention's mask is brought from the host"
"""Why steps with eager attention are not recorded; torch 2.11 and transformers 5.17 say so while they try."""
_SHARED = "ranks exchange sums within each layer that they share"


def lacks(wanted: Wanted) -> str | None:
    return "holds the whole model on each rank, and cannot split it" if wanted.zero_stage else None


def shares(wanted: Wanted) -> str | None:
    return None


def unrecorded(wanted: Wanted) -> str | None:
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    if wanted.family in MODEL_TYPES:
        return MASKED
    if wanted.model.attention == "eager":
        return EAGER
    if wanted.parallel.tensor > 1:
        return _SHARED
    if wanted.model.quantization is not None and wanted.model.quantization.kind == "int8":
        return "int8 layers were not compared with unrecorded ones yet"
    return None


def without_fp8(wanted: Wanted) -> str | None:
    if wanted.parallel.tensor > 1:
        return "was not tried with fp8 in layers that ranks share"
    if wanted.family is not None and wanted.family not in KNOWN_FAMILIES:
        return f"knows nothing of the layers of {wanted.family}, which are to multiply in fp8"
    return None


def _compiles(wanted: Wanted) -> bool:
    return wanted.model.fp8 and bool(wanted.parallel.gpus_per_node) and wanted.has_cuda


def splitting(wanted: Wanted) -> Mapping[str, Chosen]:
    return {"compiled_layers": (True, ROUNDS)} if _compiles(wanted) else {}


def unfused(part: str, wanted: Wanted) -> str | None:
    if wanted.parallel.tensor > 1 and part != "fused_loss":
        return _SHARED
    if part == "fused_lora":
        return _unfused_lora(wanted)
    if part == "fused_dequantization":
        return _not_unpacked(wanted)
    if part == "fused_layers" and not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    if part == "fused_layers" and _compiles(wanted):
        return "whole layers are compiled"
    if wanted.family is not None and wanted.family not in KNOWN_FAMILIES:
        return f"nothing is known of the modules of {wanted.family}"
    return None


def _not_unpacked(wanted: Wanted) -> str | None:
    quantization = wanted.model.quantization
    if quantization is None or quantization.kind not in ("nf4", "fp4"):
        return "nothing is packed in 4 bits"
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    return None if wanted.has_cuda else "it was measured on NVIDIA's GPUs alone"


def _unfused_lora(wanted: Wanted) -> str | None:
    peft, quantization = wanted.model.peft, wanted.model.quantization
    if peft is None:
        return "there is no LoRA"
    if peft.dropout:
        return "each adapter drops what it sees at random"
    return "int8 layers show no weights" if quantization is not None and quantization.kind == "int8" else None


FACTS = EngineFacts(
    name="plain",
    module="hpc_llm.worker.engines.plain",
    lacks=lacks,
    unshared=shares,
    unrecorded=unrecorded,
    unfused=unfused,
    without_fp8=without_fp8,
    splitting=splitting,
    fallback="deepspeed",
)
