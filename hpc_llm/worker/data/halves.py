"""Plain sequences as a model with an encoder and a decoder takes them: it reads the first half and writes the second."""

from __future__ import annotations

from typing import Any

import torch

from hpc_llm.errors import WorkerError
from hpc_llm.worker.data.batch import ATTENTION_MASK, DECODER_INPUT, LABELS, Batch


def in_halves(batch: Batch, start: int) -> Batch:
    """All tokens of the second half are predicted, the first of them from `start` and what was read."""
    if batch.keys() - {"input_ids"}:
        raise WorkerError(
            "the data were prepared for a model that only writes on, and this one reads and writes: prepare them anew."
        )
    tokens = batch["input_ids"]
    read, written = tokens.split([tokens.shape[1] - tokens.shape[1] // 2, tokens.shape[1] // 2], dim=1)
    begun = torch.full_like(written[:, :1], start)
    return {
        "input_ids": read,
        ATTENTION_MASK: torch.ones_like(read),
        DECODER_INPUT: torch.cat([begun, written[:, :-1]], dim=1),
        LABELS: written.contiguous(),
    }


def start_token(model: Any) -> int:
    """With what the decoder of a model begins to write."""
    for settings in (model.config, getattr(model, "generation_config", None)):
        token = getattr(settings, "decoder_start_token_id", None)
        if isinstance(token, int):
            return token
    return int(getattr(model.config, "pad_token_id", None) or 0)
