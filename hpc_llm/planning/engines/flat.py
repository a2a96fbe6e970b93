"""Flat units: parameters whole on each rank, gradients and optimizer split among all."""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.planning.engines import fsdp2, plain
from hpc_llm.planning.engines.facts import Chosen, EngineFacts, Wanted
from hpc_llm.planning.optimizers import OF_DEEPSPEED

_SEEN = 0.94
"""Of the GPU's memory, what a run that nobody asked this engine for may need."""
_OUTSIDE = (1.4 * 2**30, 2.3 * 2**30)
"""The most that lies outside torch's allocator, of one rank and of several."""
_PIECES = 1.15
"""What a CUDA graph may hold of what its passes need."""
_LARGE = 4096
"""Tokens of a micro batch from which on the GPU has more to do than the host to ask for."""
_LAYERS = 2
"""In a unit: as few as fill the link between GPUs, for the gradients of two units are whole at a time."""
_MOMENTS = 8
"""Bytes of both, in fp32."""


def lacks(wanted: Wanted) -> str | None:
    if said := fsdp2.splits_nothing(wanted):
        return said
    if wanted.model.quantization is not None or wanted.model.peft is not None:
        return "trains all parameters, and here some are frozen"
    if wanted.model.precision == "fp16":
        return "scales no losses, as fp16 needs"
    return _no_room(wanted)


def _no_room(wanted: Wanted) -> str | None:
    """Why no batch at all can fit, where that is known."""
    needed = _state_bytes(wanted)
    if needed is None or wanted.gpu_bytes is None or needed <= wanted.gpu_bytes:
        return None
    gib = f"{needed / 2**30:.1f} GiB with their states are more than the GPU's {wanted.gpu_bytes / 2**30:.1f} GiB"
    return f"keeps whole parameters on each rank, and {gib}"


def _state_bytes(wanted: Wanted) -> float | None:
    """What a rank holds whatever the batch; None where the parameters cannot be counted."""
    if wanted.parameters is None:
        return None
    whole, copy = (4, 0) if wanted.model.precision == "fp32" else (2, 4)
    own = copy + whole + (_MOMENTS if wanted.optimizer.type in OF_DEEPSPEED else 0)  # gradients are at least as narrow
    return wanted.parameters * (whole + own / wanted.parallel.world_size)


def unsuited(wanted: Wanted) -> str | None:
    """It is several times as fast as the others where whole parameters fit beside the batch, and of no use where they do not."""
    if not (wanted.parallel.gpus_per_node and wanted.has_cuda):
        return "was measured on NVIDIA's GPUs alone"
    states = _state_bytes(wanted)
    if states is None or wanted.kept_bytes is None or wanted.gpu_bytes is None:
        return "keeps whole parameters on each rank, and nobody knows whether there is room"
    needed = (
        states + wanted.kept_bytes * (1.0 if _is_large(wanted) else _PIECES) + _OUTSIDE[wanted.parallel.world_size > 1]
    )
    if needed <= wanted.gpu_bytes * _SEEN:
        return None
    gib = (
        f"{needed / 2**30:.1f} GiB with states and batch are too many for the GPU's {wanted.gpu_bytes / 2**30:.1f} GiB"
    )
    return f"keeps whole parameters on each rank, and {gib}"


def _is_large(wanted: Wanted) -> bool:
    return wanted.batch.micro_batch_size * wanted.batch.sequence_length >= _LARGE


def unrecorded(wanted: Wanted) -> str | None:
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    if wanted.has_cuda and _is_large(wanted):
        return "a large batch keeps the GPU busy without"
    return None if wanted.has_cuda else "it was made for NVIDIA's GPUs alone"


def unfused(part: str, wanted: Wanted) -> str | None:
    if part == "fused_layers" and _compiles(wanted):
        return "whole layers are compiled"
    return plain.unfused(part, wanted)


def _compiles(wanted: Wanted) -> bool:
    """Whole layers that are compiled keep as little as compiled parts of them, and are no faster than these in a graph."""
    return bool(wanted.parallel.gpus_per_node) and wanted.has_cuda and _is_large(wanted)


def splitting(wanted: Wanted) -> Mapping[str, Chosen]:
    has_gpus = bool(wanted.parallel.gpus_per_node)
    return {
        "layers_per_unit": (_LAYERS, "the gradients of two units are whole at a time"),
        "reduce_precision": fsdp2.splitting(wanted)["reduce_precision"],
        "compiled_layers": (True, "which are fewer kernels of a large batch")
        if _compiles(wanted)
        else (False, "parts of them are compiled (fused_layers)"),
        "overlap": (has_gpus, "a stream of their own" if has_gpus else "there is no GPU"),
        "fused_optimizer": _fuses_optimizer(wanted),
    }


def _fuses_optimizer(wanted: Wanted) -> Chosen:
    if not (wanted.parallel.gpus_per_node and wanted.has_cuda):
        return False, "there is no GPU of NVIDIA's"
    if wanted.optimizer.type not in OF_DEEPSPEED:
        return False, f"nothing is known of {wanted.optimizer.type}"
    if wanted.model.precision == "fp32":
        return False, "in fp32 nothing is rounded"
    return True, "one pass over memory"


FACTS = EngineFacts(
    name="flat",
    module="hpc_llm.worker.engines.flat",
    lacks=lacks,
    unsuited=unsuited,
    unrecorded=unrecorded,
    unfused=unfused,
    splitting=splitting,
    fallback="deepspeed",
)
