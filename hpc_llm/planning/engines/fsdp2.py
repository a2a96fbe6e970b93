"""PyTorch's fully sharded data parallel."""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.planning.engines import plain
from hpc_llm.planning.engines.facts import KNOWN_FAMILIES, SEEN, Chosen, EngineFacts, Wanted, offload_place
from hpc_llm.planning.optimizers import PURE_BF16

_STATES = 16
"""Bytes of a parameter that a rank holds, of those that are its own: weight, gradient and two moments in fp32."""
_LAYERS = 8
"""In a unit where parameters are kept: 16 were 3 % slower on two H200, one layer a unit 1.6 times as slow."""


def lacks(wanted: Wanted) -> str | None:
    return splits_nothing(wanted) or _unsplit(wanted)


def splits_nothing(wanted: Wanted) -> str | None:
    """Why an engine that splits what trains among the ranks, and keeps it in fp32 on the device, cannot do it."""
    if not wanted.zero_stage:
        return "splits among all ranks what trains, and this method splits nothing"
    if offload_place(wanted.deepspeed, "optimizer") or offload_place(wanted.deepspeed, "param"):
        return "keeps everything on the device, and cannot offload"
    if wanted.optimizer.type in PURE_BF16:
        return f"keeps in fp32 what it trains, and {wanted.optimizer.type} does without"
    return None


def unsuited(wanted: Wanted) -> str | None:
    """In all that was measured beside DeepSpeed's ZeRO-3 it was faster, up to 2.5 times, with less memory."""
    if not (wanted.parallel.gpus_per_node and wanted.has_cuda):
        return "was measured on NVIDIA's GPUs alone"
    if wanted.model.precision != "bf16" or wanted.model.quantization is not None or wanted.model.peft is not None:
        return "was measured in bf16 with whole models alone"
    return "was measured with whole layers alone" if wanted.parallel.tensor > 1 else None


def _unsplit(wanted: Wanted) -> str | None:
    quantization = wanted.model.quantization
    if quantization is not None and wanted.zero_stage != 3:
        return "splits a quantized base with ZeRO-3 alone"
    if quantization is not None and quantization.kind == "int8":
        return "splits no weights of 8 bits"
    return None


def unshared(wanted: Wanted) -> str | None:
    if wanted.model.precision == "fp16":
        return "cannot skip a step on all ranks that share layers where one overflows in fp16"
    return None


def splitting(wanted: Wanted) -> Mapping[str, Chosen]:
    keeps, why = _keeps(wanted)
    quantized = wanted.model.quantization is not None
    layers = (_LAYERS, "few large exchanges among the ranks") if keeps else (1, "no more than a layer is whole")
    return {
        "keeps_parameters": (keeps, why),
        "layers_per_unit": (1, "packed layers are split one by one") if quantized else layers,
        "hybrid_sharding": _is_hybrid(wanted),
        "reduce_precision": _reduces_in(wanted),
        "compiled_layers": _compiles(wanted),
    }


def _keeps(wanted: Wanted) -> Chosen:
    """Parameters may stay whole where they and the rank's own share take no more than half of the GPU, and leave room for the batch."""
    if wanted.zero_stage < 3:
        return True, f"ZeRO-{wanted.zero_stage} splits no parameters"
    if wanted.parameters is None or wanted.gpu_bytes is None:
        return False, "nobody knows whether there is room for the whole parameters"
    whole = wanted.parameters // wanted.parallel.tensor * (4 if wanted.model.precision == "fp32" else 2)
    needed = whole + wanted.parameters * _STATES / wanted.parallel.world_size
    room = f"{wanted.gpu_bytes / 2**30:.1f} GiB"
    if needed > wanted.gpu_bytes / 2:
        return False, f"{needed / 2**30:.1f} GiB of states and whole parameters are more than half of {room}"
    with_batch = needed + (wanted.kept_bytes or 0.0)
    if with_batch > wanted.gpu_bytes * SEEN:
        return (
            False,
            f"{with_batch / 2**30:.1f} GiB with whole parameters and the batch are more than {SEEN:.0%} of {room}",
        )
    return True, f"{needed / 2**30:.1f} GiB of states and whole parameters are no more than half of {room}"


def _is_hybrid(wanted: Wanted) -> Chosen:
    if wanted.parallel.nodes == 1:
        return False, "there is one node"
    return False, "nobody has measured it between nodes; true gathers parameters within each node alone"


def _reduces_in(wanted: Wanted) -> Chosen:
    if wanted.model.precision == "bf16":
        return "bf16", "as DeepSpeed does: the precision of the run"
    return "fp32", "the precision of what is stepped"


def _compiles(wanted: Wanted) -> Chosen:
    if not wanted.parallel.gpus_per_node:
        return False, "there is no GPU"
    if not wanted.has_cuda:
        return False, "it was measured on NVIDIA's GPUs alone"
    if wanted.model.quantization is not None:
        return False, "packed layers were not tried"
    if wanted.parallel.tensor > 1:
        return False, "layers that ranks share were not tried"
    return True, "fewer and larger kernels"


def unfused(part: str, wanted: Wanted) -> str | None:
    if part != "fused_loss":
        return "it fuses the loss alone"
    if wanted.family is not None and wanted.family not in KNOWN_FAMILIES:
        return f"nothing is known of the modules of {wanted.family}"
    if wanted.model.quantization is not None or wanted.model.peft is not None:
        return "it was tried with models that train whole"
    if wanted.parallel.tensor > 1:
        return "it was tried with whole layers alone"
    return None


FACTS = EngineFacts(
    name="fsdp2",
    module="hpc_llm.worker.engines.fsdp2",
    lacks=lacks,
    unsuited=unsuited,
    unshared=unshared,
    splitting=splitting,
    unfused=unfused,
    without_fp8=plain.without_fp8,
    fallback="deepspeed",
)
