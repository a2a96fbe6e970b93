"""How many bytes a run keeps at most at a time, from the sizes of its model. Pure; None where the sizes are not known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hpc_llm.errors import RequestError
from hpc_llm.planning.encoder_decoder import EncoderDecoder
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import Shape, architecture, matrices, num_parameters
from hpc_llm.planning.optimizers import PURE_BF16

_WEIGHT_AND_MOMENTS, _PACKED, _BF16 = 12, 6, 6
"""Bytes of a number that trains: all in fp32, with moments in 8 bits, all in bf16."""
_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class Room:
    """Bytes on the disk."""

    checkpoint: int
    """Of one."""
    model: int
    """Of what is kept for use."""
    most: int
    """While the newest checkpoint is written the older ones are still there."""


def room_of(plan: Plan) -> Room | None:
    """What the run will keep; None where it keeps nothing, or the shape of its model cannot be seen from here."""
    training = plan.training
    if training.save_every is None:
        return None
    try:
        shape = architecture(plan.model.name)
    except RequestError:
        return None
    trained = _trained(plan, shape)
    if trained is None:
        return None
    checkpoint = trained * _bytes_of_one(plan.optimizer.type)
    model = (trained if plan.model.peft else num_parameters(shape)) * _BYTES[plan.model.precision]
    at_once = min(training.keep + 1, -(-training.steps // training.save_every))
    return Room(checkpoint, model, checkpoint * at_once + model)


def _bytes_of_one(optimizer: str) -> int:
    if optimizer in PURE_BF16:
        return _BF16
    return _PACKED if "8bit" in optimizer.lower() else _WEIGHT_AND_MOMENTS


def _trained(plan: Plan, shape: Shape) -> int | None:
    """Numbers that train; None where adapters or a quantized base leave some of which the layers are not counted."""
    if isinstance(shape, EncoderDecoder):
        return None if plan.model.peft or plan.model.quantization else num_parameters(shape)
    layers = shape.num_hidden_layers
    sizes = matrices(shape)
    if plan.model.peft is not None:
        wanted = plan.model.peft.target_modules
        names: Collection[str] = sizes if isinstance(wanted, str) else wanted
        return layers * plan.model.peft.r * sum(sum(size) for name, size in sizes.items() if name in names)
    if plan.model.quantization is not None:
        return num_parameters(shape) - layers * sum(rows * columns for rows, columns in sizes.values())
    return num_parameters(shape)
