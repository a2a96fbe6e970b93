"""Flat units: parameters whole on each rank, gradients and optimizer split among all."""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.planning.engines import fsdp2, plain
from hpc_llm.planning.engines.facts import Chosen, EngineFacts, Wanted
from hpc_llm.planning.optimizers import OF_DEEPSPEED

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
    if wanted.parameters is None or wanted.gpu_bytes is None:
        return None
    whole, copy = (4, 0) if wanted.model.precision == "fp32" else (2, 4)
    own = copy + whole + (_MOMENTS if wanted.optimizer.type in OF_DEEPSPEED else 0)  # gradients are at least as narrow
    needed = wanted.parameters * (whole + own / wanted.parallel.world_size)
    if needed <= wanted.gpu_bytes:
        return None
    gib = f"{needed / 2**30:.1f} GiB with their states are more than the GPU's {wanted.gpu_bytes / 2**30:.1f} GiB"
    return f"keeps whole parameters on each rank, and {gib}"


def unrecorded(wanted: Wanted) -> str | None:
    if not wanted.parallel.gpus_per_node:
        return "there is no GPU"
    return None if wanted.has_cuda else "it was made for NVIDIA's GPUs alone"


def unfused(part: str, wanted: Wanted) -> str | None:
    return plain.unfused(part, wanted)


def splitting(wanted: Wanted) -> Mapping[str, Chosen]:
    has_gpus = bool(wanted.parallel.gpus_per_node)
    return {
        "layers_per_unit": (_LAYERS, "the gradients of two units are whole at a time"),
        "reduce_precision": fsdp2.splitting(wanted)["reduce_precision"],
        "compiled_layers": (False, "parts of them are compiled (fused_layers)"),
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
    unrecorded=unrecorded,
    unfused=unfused,
    splitting=splitting,
    fallback="deepspeed",
)
