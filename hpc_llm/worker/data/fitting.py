"""Batches as the model that is trained takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from hpc_llm.planning.engines.facts import KNOWN_FAMILIES
from hpc_llm.worker.data.batch import ATTENTION_MASK, DECODER_INPUT, Batch
from hpc_llm.worker.data.halves import in_halves, start_token

_B = TypeVar("_B", Batch, Batch | None)


def fitting(batches: Iterator[_B], model: Any) -> Iterator[_B]:
    """The batches as `model` takes them; what a source has made for a decoder stays as it is."""
    if getattr(model.config, "is_encoder_decoder", False):
        start = start_token(model)
        return (batch if batch is None or DECODER_INPUT in batch else in_halves(batch, start) for batch in batches)
    if getattr(model.config, "model_type", None) in KNOWN_FAMILIES:
        return (batch if batch is None else without_mask(batch) for batch in batches)
    return batches


def without_mask(batch: Batch) -> Batch:
    """A batch whose rows are padded behind their samples, as all sources pad, without the mask that says where.

    A token of these models sees nothing that is behind it, and nothing is predicted behind a sample, so that the mask changes no
    loss. With it attention takes a slower kernel, and no step can be recorded: a model may choose its way by what a mask holds.
    """
    return {name: tensor for name, tensor in batch.items() if name != ATTENTION_MASK}
