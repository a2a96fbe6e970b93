"""The sizes that a model's config.json gives: whole numbers that a model can have, and that go together. Standard library only.

Whoever builds a model of others takes all the time and memory that there is, or ends in the midst of a library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from hpc_llm.errors import ModelRequestError
from hpc_llm.records.metrics import is_figure

_LAYERS, _HEADS, _WIDTHS, _TOKENS = 10_000, 100_000, 10_000_000, 1_000_000_000
LARGEST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "num_key_value_heads"), _HEADS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "head_dim", "d_kv"), _WIDTHS),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_ff", "ffn_dim", "relative_attention_num_buckets"), _WIDTHS),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), _TOKENS),
}
"""Keys of config.json that are sizes in every family, with more than any model has of them."""
MOST_PARAMETERS = 10**14
"""A hundred times the largest model there is."""
_COUNTED = ("llama", "mistral", "qwen2", "t5")
"""Families each size of which is one number; others may have one for each layer."""
_EVEN = ("llama", "mistral", "qwen2", "gpt2", "gpt_neox")
"""Families whose heads share the hidden size evenly, unless the config says how wide a head is."""
_NUMBERS = ("rope_theta", "rms_norm_eps", "layer_norm_epsilon", "initializer_range")
_SWITCHES = ("tie_word_embeddings", "is_encoder_decoder", "is_gated_act")


_LONG = re.compile(r'"(\w{1,60})"\s{0,20}:\s{0,20}(-?\d{19,})')


def check_text(text: str, where: str) -> None:
    """The same for a number of so many digits that whoever reads records takes none of them."""
    for found in _LONG.finditer(text):
        if found[1] in LARGEST:
            _refuse(where, found[1], found[2], f"a whole number from 1 to {LARGEST[found[1]]}")


def check_sizes(config: Mapping[str, Any], where: str) -> None:
    """Raise ModelRequestError where a size is none, or the sizes do not go together; `where` names the file."""
    family = config.get("model_type")
    for key, largest in LARGEST.items():
        if key in config:
            _check_size(key, config[key], largest, where, family in _COUNTED)
    for key in _NUMBERS:
        value = config.get(key)
        if value is not None and not (is_figure(value) and value > 0):
            _refuse(where, key, value, "a number above 0")
    for key in _SWITCHES:
        if config.get(key) is not None and not isinstance(config[key], bool):
            _refuse(where, key, config[key], "true or false")
    if family in _EVEN:
        _check_heads(config, where)
    _check_total(config, where)


def _check_size(key: str, value: Any, largest: int, where: str, is_counted: bool) -> None:
    """One that is null is left to its default."""
    if value is None or (isinstance(value, list) and not is_counted):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        _refuse(where, key, value, f"a whole number from 1 to {largest}")


def _check_heads(config: Mapping[str, Any], where: str) -> None:
    width, heads = _first(config, ("hidden_size", "n_embd")), _first(config, ("num_attention_heads", "n_head"))
    shared = _first(config, ("num_key_value_heads",))
    if width and heads and width % heads and not config.get("head_dim"):
        raise ModelRequestError(
            f"{where}: the hidden size {width} is no multiple of the {heads} attention heads, which share it evenly."
        )
    if heads and shared and heads % shared:
        raise ModelRequestError(
            f"{where}: num_attention_heads {heads} is no multiple of num_key_value_heads {shared}, and each of these serves as many."
        )


def _check_total(config: Mapping[str, Any], where: str) -> None:
    """Sizes each of which can be, and that together are no model: at least so many parameters there are."""
    width = _first(config, ("hidden_size", "n_embd", "d_model")) or 1
    layers = _first(config, ("num_hidden_layers", "n_layer", "num_layers")) or 1
    inner = _first(config, ("intermediate_size", "n_inner", "d_ff", "ffn_dim")) or 1
    least = width * ((_first(config, ("vocab_size",)) or 1) + layers * inner)
    if least > MOST_PARAMETERS:
        raise ModelRequestError(
            f"{where}: a model of these sizes has more than {least:.0e} parameters (hidden size {width}, {layers} layers, MLP {inner} wide): "
            f"no more than {MOST_PARAMETERS:.0e} are taken."
        )


def _first(config: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    return next((value for key in keys if isinstance(value := config.get(key), int)), None)


def _refuse(where: str, key: str, value: Any, valid: str) -> NoReturn:
    shown = value if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) > 18 else repr(value)
    raise ModelRequestError(f"{where}: {key} is {shown[:40]}{'…' * (len(shown) > 40)}, it must be {valid}.")
