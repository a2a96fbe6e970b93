"""Flat units: parameters whole on each rank, gradients and optimizer split among all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpc_llm.planning.encoder_decoder import MODEL_TYPES
from hpc_llm.planning.engines import fsdp2, plain
from hpc_llm.planning.engines.facts import SEEN, Chosen, EngineFacts, Wanted, offload_place
from hpc_llm.planning.optimizers import OF_DEEPSPEED

_OUTSIDE = (1.4 * 2**30, 2.3 * 2**30)
"""The most that lies outside torch's allocator, of one rank and of several."""
_PIECES = 1.15
"""What a CUDA graph may hold of what its passes need."""
_LARGE = 4096
"""Tokens of a micro batch from which on the GPU has more to do than the host to ask for."""
_VISITING = 0.25
"""Of the parameters, what a rank holds at most where they visit the device: 3.4 GiB with a small batch for 12.6 GiB of a 7B's."""
_LAYERS = 2
"""In a unit: as few as fill the link between GPUs, for the gradients of two units are whole at a time."""
_MOMENTS = 8
"""Bytes of both, in fp32."""
_AT_ONCE = 1024
"""Places whose logits the fused loss has at once."""


def lacks(wanted: Wanted) -> str | None:
    if said := _cannot_offload(wanted) or fsdp2.splits_nothing(_without_offload(wanted)):
        return said
    if wanted.model.quantization is not None or wanted.model.peft is not None:
        return "trains all parameters, and here some are frozen"
    if wanted.model.precision == "fp16":
        return "scales no losses, as fp16 needs"
    return _no_room(wanted)


def _zero(wanted: Wanted) -> Mapping[str, Any]:
    found: Mapping[str, Any] = wanted.deepspeed.get("zero_optimization") or {}
    return found


def _place(wanted: Wanted, what: str) -> str | None:
    return offload_place(wanted.deepspeed, what)


def offloads(wanted: Wanted) -> bool:
    """Whether the optimizer's states are on the host."""
    return _place(wanted, "optimizer") is not None


def visits(wanted: Wanted) -> bool:
    """Whether the parameters are there, too, and come to the device a few layers at a time."""
    return offloads(wanted) and _place(wanted, "param") is not None


def _without_offload(wanted: Wanted) -> Wanted:
    kept = {key: value for key, value in _zero(wanted).items() if not key.startswith("offload_")}
    return replace(wanted, deepspeed={**wanted.deepspeed, "zero_optimization": kept})


def _cannot_offload(wanted: Wanted) -> str | None:
    places = {_place(wanted, "optimizer"), _place(wanted, "param")} - {None, "cpu"}
    if places:
        return f"offloads to the host's memory alone, and not to {places.pop()}"
    if not offloads(wanted):
        return "offloads parameters with the optimizer's states alone" if _place(wanted, "param") else None
    if _place(wanted, "param") and wanted.zero_stage != 3:
        return "offloads parameters with ZeRO-3 alone"
    if wanted.optimizer.type not in OF_DEEPSPEED:
        return f"offloads the states of AdamW alone, and not of {wanted.optimizer.type}"
    ratio = (_zero(wanted).get("offload_optimizer") or {}).get("ratio", 1.0)
    return None if ratio == 1.0 else "offloads all of the optimizer or nothing"


def _no_room(wanted: Wanted) -> str | None:
    """Why no batch at all can fit, where that is known."""
    needed = _state_bytes(wanted)
    if needed is None or wanted.gpu_bytes is None or needed <= wanted.gpu_bytes:
        return None
    what = "" if offloads(wanted) else " with their states"
    gib = f"{needed / 2**30:.1f} GiB{what} are more than the GPU's {wanted.gpu_bytes / 2**30:.1f} GiB"
    return f"keeps whole parameters on each rank, and {gib}"


def _state_bytes(wanted: Wanted) -> float | None:
    """What a rank holds whatever the batch; None where the parameters cannot be counted."""
    if wanted.parameters is None:
        return None
    whole, copy = (4, 0) if wanted.model.precision == "fp32" else (2, 4)
    if offloads(wanted):
        return wanted.parameters * whole * (_VISITING if visits(wanted) else 1.0)
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
    if needed <= wanted.gpu_bytes * SEEN:
        return None
    room = f"{SEEN:.0%} of the GPU's {wanted.gpu_bytes / 2**30:.1f} GiB"
    return (
        f"keeps whole parameters on each rank, and {needed / 2**30:.1f} GiB with states and batch are more than {room}"
    )


def _is_large(wanted: Wanted) -> bool:
    return wanted.batch.micro_batch_size * wanted.batch.sequence_length >= _LARGE


def unrecorded(wanted: Wanted) -> str | None:
    if offloads(wanted):
        return "its gradients leave for the host meanwhile, which nobody has recorded"
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    if wanted.family in MODEL_TYPES:
        return plain.MASKED
    if wanted.has_cuda and _is_large(wanted):
        return "a large batch keeps the GPU busy without"
    return None if wanted.has_cuda else "it was made for NVIDIA's GPUs alone"


def unfused(part: str, wanted: Wanted) -> str | None:
    if part == "fused_layers" and _compiles(wanted):
        return "whole layers are compiled"
    said = plain.unfused(part, wanted)
    return _small(part, wanted) if said is None and offloads(wanted) else said


def _small(part: str, wanted: Wanted) -> str | None:
    """Why something is not fused that could be, where states or parameters are on the host."""
    if wanted.batch.micro_batch_size * wanted.batch.sequence_length > _AT_ONCE:
        return None
    if part == "fused_layers":
        return "so few tokens are done before their gradients are on the host"
    return "all logits at once take less here than the head's gradient in fp32" if part == "fused_loss" else None


def _compiles(wanted: Wanted) -> bool:
    """Whole layers that are compiled keep as little as compiled parts of them, and are no faster than these in a graph."""
    if visits(wanted):  # what is compiled as a whole would keep parameters that come and go
        return False
    return bool(wanted.parallel.gpus_per_node) and wanted.has_cuda and (_is_large(wanted) or wanted.model.fp8)


def splitting(wanted: Wanted) -> Mapping[str, Chosen]:
    has_gpus = bool(wanted.parallel.gpus_per_node)
    shared: dict[str, Chosen] = {
        "reduce_precision": fsdp2.splitting(wanted)["reduce_precision"],
        "compiled_layers": (True, plain.ROUNDS if wanted.model.fp8 else "which are fewer kernels of a large batch")
        if _compiles(wanted)
        else (False, "parts of them are compiled (fused_layers)"),
        "overlap": (has_gpus, "a stream of their own" if has_gpus else "there is no GPU"),
    }
    if visits(wanted):
        del shared["compiled_layers"]  # what is compiled as a whole would keep parameters that come and go
    if offloads(wanted):
        return {**shared, **_offloaded(has_gpus)}
    return {
        **shared,
        "layers_per_unit": (_LAYERS, "the gradients of two units are whole at a time"),
        "fused_optimizer": _fuses_optimizer(wanted),
    }


def _offloaded(has_gpus: bool) -> dict[str, Chosen]:
    where = ("device", "the host's memory is read and written once") if has_gpus else ("host", "there is no GPU")
    return {
        "layers_per_unit": (1, "the gradients of two units are whole at a time, and memory is short"),
        "offloaded_step": where,
        "moments_precision": ("fp32", "bf16 has to be asked for: its values have 8 significant bits"),
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
    without_fp8=plain.without_fp8,
    splitting=splitting,
    fallback="deepspeed",
)
