"""The sizes of a plan's model: of a preset, of a family that is known, or of any config.json that says how wide and deep it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError
from hpc_llm.estimating.family_facts import FamilyFacts, facts_of
from hpc_llm.estimating.sizes import Block, Sizes, shared, sizes_of
from hpc_llm.planning.checkpoint import read_config
from hpc_llm.planning.encoder_decoder import MODEL_TYPES as ENCODER_DECODERS
from hpc_llm.planning.experiment import Plan
from hpc_llm.planning.model import MODEL_TYPES, architecture, is_checkpoint

_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")
"""Of layers of which each token sees a part."""
_UNLIKE = re.compile(
    r"_?(?:mamba|ssm|lru|rwkv|conv_L|linear_(?:attn|num|key|value|conv)|kv_lora|block_configs|altup|laurel|num_mem_blocks|block_types|state_size|attn_layer_ind)\w{0,40}"
)
"""Keys of layers that are no attention with an MLP behind it: state spaces, recurrences, what layers share, low ranks."""
_KINDS_OF_LAYERS = ("layer_types", "layers_block_type", "layer_type_list")
_ATTENTION = re.compile(r"(?:full|sliding|chunked|global|local)?_?attention|attn", re.IGNORECASE)
_OTHER_WORDS = (
    "n_embd",
    "n_layer",
    "n_head",
    "n_heads",
    "n_layers",
    "ffn_dim",
    "d_model",
    "word_embed_proj_dim",
    "text_config",
)
_MOST = 10**13
"""Parameters: no model has as many."""


def sizes_in(plan: Plan) -> Sizes:
    """Of the plan's model, of which a rank has a part of each layer where ranks share these.

    Raises:
        RequestError: its shape cannot be seen from here, or is none that can be counted.
    """
    return shared(sizes_of_model(plan.model.name), plan.parallel.tensor)


def sizes_of_model(model: str) -> Sizes:
    """Of a preset or a checkpoint folder. Raises as `sizes_in`."""
    try:
        if is_checkpoint(model):
            return _held(_of_folder(Path(model)), model)
        return _held(sizes_of(architecture(model)), model)
    except RequestError as error:
        raise RequestError(f"no estimate without the shape of the model: {error}") from None


def _held(sizes: Sizes, model: str) -> Sizes:
    if sizes.parameters > _MOST:
        raise RequestError(f"{model} would have {sizes.parameters:.3g} parameters, and no model has as many.")
    return sizes


def _of_folder(folder: Path) -> Sizes:
    config = read_config(folder)
    where = folder / "config.json"
    family = str(config.get("model_type"))
    if experts := [key for key in _EXPERTS if config.get(key)]:
        raise RequestError(
            f"{where} is of a mixture of experts ({experts[0]}): what its tokens see of it is not known here."
        )
    if unlike := _unlike_llama(config):
        raise RequestError(
            f"{where} is of a model with layers of other kinds than attention and MLP ({unlike}): their sizes are not known here."
        )
    if family in ENCODER_DECODERS:
        _check_counts(config, ("d_model", "d_ff", "num_layers", "num_heads", "d_kv", "vocab_size"), where)
        return sizes_of(architecture(str(folder)))
    _check_counts(config, _NEEDED, where)
    if family in MODEL_TYPES and not _head_dim_differs(config):
        return sizes_of(architecture(str(folder)))
    facts = facts_of(family)
    if facts is None:
        raise RequestError(
            f"{where} is of the family {family}, whose layers hold others than Llama's: their sizes are not known here."
        )
    like = (
        "counted as a decoder like Llama" if facts.is_known else "not known here, and counted as a decoder like Llama"
    )
    gate = ", without the gate of its MLP" if facts.gates == 1 else ""
    return replace(_of_decoder(config, facts), doubt=f"the family {family}: {like}{gate}, no such run was measured")


def _unlike_llama(config: Mapping[str, Any]) -> str | None:
    """The kind of layer or the key that says so; None where nothing does."""
    for key in _KINDS_OF_LAYERS:
        kinds = config.get(key)
        others = (
            [str(kind)[:40] for kind in kinds if not _ATTENTION.fullmatch(str(kind))] if isinstance(kinds, list) else []
        )
        if others:
            return others[0]
    return next((key for key, value in config.items() if value and (_UNLIKE.fullmatch(key) or "hybrid" in key)), None)


def _check_counts(config: Mapping[str, Any], keys: tuple[str, ...], where: Path) -> None:
    """Raise RequestError where one of the sizes is no whole number of at least 1, or is missing."""
    if missing := [key for key in keys if key not in config]:
        others = [key for key in _OTHER_WORDS if key in config]
        why = (
            f"it counts in other words ({', '.join(others)}), of a family that is not known here"
            if others
            else "is it a language model?"
        )
        raise RequestError(f"{where} does not say {', '.join(missing)}: {why}")
    optional = [key for key in ("num_key_value_heads", "head_dim") if config.get(key) is not None]
    for key in (*keys, *optional):
        value = config[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RequestError(f"{where}: {key} is {value!r}, a whole number of at least 1 is needed.")


def _head_dim_differs(config: Mapping[str, Any]) -> bool:
    """Whether the heads together are not as wide as the model, as in some families."""
    stated = config.get("head_dim")
    return stated is not None and stated * config["num_attention_heads"] != config["hidden_size"]


def _of_decoder(config: Mapping[str, Any], facts: FamilyFacts) -> Sizes:
    """As if it had Llama's layers, two norms and no biases, with what is its family's own."""
    width, inner, layers, heads, vocabulary = (int(config[key]) for key in _NEEDED)
    head = int(config.get("head_dim") or facts.head_dim or max(width // heads, 1))
    queries, keys = heads * head, int(config.get("num_key_value_heads") or heads) * head
    matrices = {
        "q_proj": (queries, width), "k_proj": (keys, width), "v_proj": (keys, width), "o_proj": (width, queries),
        **dict.fromkeys(("up_proj", "gate_proj")[: facts.gates], (inner, width)), "down_proj": (width, inner),
    }  # fmt: skip
    block = Block(count=layers, matrices=matrices, norms=2, others=2 * width)
    is_tied = bool(config.get("tie_word_embeddings", facts.is_tied))
    return Sizes(
        parameters=vocabulary * width * (1 if is_tied else 2) + layers * block.parameters + width,
        hidden=width,
        inner=inner,
        gates=facts.gates,
        heads=heads,
        attention=queries,
        keys=keys,
        vocabulary=vocabulary,
        is_tied=is_tied,
        blocks=(block,),
    )
