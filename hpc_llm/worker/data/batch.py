"""What a micro batch is, and how many tokens of it are predicted."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

MASKED = -100
"""Label of a token that is not to be predicted, as in torch and transformers."""

LABELS = "labels"

POSITIONS = "position_ids"
"""Where each token stands in its document; a row holds several where they begin anew in it."""

ATTENTION_MASK = "attention_mask"
"""1 for a token, 0 for what makes up the length of its row."""

DECODER_INPUT = "decoder_input_ids"
"""What a decoder has written so far. Where a batch has it, the labels stand where they are predicted, not one place behind."""

Batch = Mapping[str, torch.Tensor]
"""A micro batch on the training device: what the model takes, by its own names (`input_ids` at least), and `labels`.

The shapes are (micro batch, length), the types int64, and the lengths are the same in each batch of a source. `labels` are the tokens with MASKED where none is
to be predicted; where each is, there are none. A source gives them always or never.
"""


def model_inputs(batch: Batch) -> dict[str, torch.Tensor]:
    """What the model is called with. The labels are for the loss alone."""
    return {name: tensor for name, tensor in batch.items() if name != LABELS}


def labels_of(batch: Batch) -> torch.Tensor:
    """The tokens to be predicted, MASKED where none is."""
    return batch.get(LABELS, batch["input_ids"])


def targets_of(batch: Batch) -> torch.Tensor:
    """The token that each place predicts, MASKED where none is to be: in a decoder's labels, else one place further on."""
    if DECODER_INPUT in batch:
        return batch[LABELS]
    # The last position predicts nothing: a mask there saves a copy of all logits but the last.
    return functional.pad(labels_of(batch)[:, 1:], (0, 1), value=MASKED)


def count_targets(batch: Batch) -> int | torch.Tensor:
    """How many tokens are predicted; a number on the device where it depends on the labels."""
    if LABELS in batch:
        return (targets_of(batch) != MASKED).sum()
    tokens = batch["input_ids"]
    return tokens.shape[0] * (tokens.shape[1] - 1)  # the first one has nothing before it
