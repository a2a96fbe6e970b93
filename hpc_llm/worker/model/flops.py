"""Which weights of a model take part in products, and so how many FLOPs a token costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import nn

from hpc_llm.records import metrics
from hpc_llm.worker.tensor_parallel.split import slice_of

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_ATTENTION = {"full_attention", "sliding_attention"}


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """The shape of the whole parameter, however it is split among ranks or packed."""
    packed: Any = getattr(parameter, "quant_state", None)  # of bitsandbytes' 4-bit weights
    if packed is not None:
        return tuple(packed.shape)
    own = tuple(getattr(parameter, "ds_shape", parameter.shape))  # ds_shape: split among ranks by DeepSpeed
    how = slice_of(parameter)
    return own if how is None else how.whole_shape(own)


def model_flops_per_token(model: Any, sequence_length: int) -> float | None:
    """Model FLOPs of forward and backward for one token; None for an architecture that the formula does not describe."""
    config = model.config
    width = _attention_width(config)
    if getattr(config, "is_encoder_decoder", False):  # a token passes one half of it, and looks at the other's
        return None
    if width is None or any((getattr(config, name, None) or 1) > 1 for name in _EXPERTS):
        return None
    if not set(getattr(config, "layer_types", None) or ()) <= _ATTENTION:
        return None
    sizes = [(math.prod(full_shape(weight)), weight.requires_grad) for weight in weights_in_products(model)]
    trained = sum(size for size, trains in sizes if trains)
    return metrics.flops_per_token(
        sum(size for size, _ in sizes), config.num_hidden_layers, width, sequence_length, trained
    )


def weights_in_products(model: Any) -> Iterator[nn.Parameter]:
    """Each matrix that a token is multiplied with: not the embeddings that are only looked up, no biases, no norms."""
    head = model.get_output_embeddings()
    multiplied = set() if head is None else {id(parameter) for parameter in head.parameters()}
    embeddings = (module for module in model.modules() if isinstance(module, nn.Embedding))
    looked_up = {id(parameter) for module in embeddings for parameter in module.parameters()} - multiplied
    for parameter in model.parameters():
        if len(full_shape(parameter)) > 1 and id(parameter) not in looked_up:
            yield parameter


def _attention_width(config: Any) -> int | None:
    """Heads times their size: the queries of one token. Not the hidden size in every family."""
    heads, hidden = getattr(config, "num_attention_heads", None), getattr(config, "hidden_size", None)
    if not isinstance(heads, int) or not isinstance(hidden, int) or not hasattr(config, "num_hidden_layers"):
        return None
    size = getattr(config, "head_dim", None)
    return heads * size if isinstance(size, int) else hidden
