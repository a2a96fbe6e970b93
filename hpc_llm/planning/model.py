"""Architectures of language models and how many parameters they hold. Standard library only.

A model is a preset of the table below, initialised at random, or a checkpoint folder as Hugging Face writes it. A
preset has the true shape of the published model, so it costs the same memory and time; its weights are not the
published ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpc_llm.corpus.words import CAUSAL, SEQ2SEQ
from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning import encoder_decoder
from hpc_llm.planning.encoder_decoder import EncoderDecoder
from hpc_llm.records.files import read_json

MODEL_TYPES = ("llama", "mistral", "qwen2")
"""Decoder-only models of one family: RMSNorm, rotary positions, gated MLP; their parameters are counted below."""

_CONFIG_KEYS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "tie_word_embeddings",
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The shape of a decoder-only language model. Sizes are counts of elements."""

    name: str
    model_type: str
    """Hugging Face's name of the family."""
    hidden_size: int
    intermediate_size: int
    """Width of the MLP."""
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    """Fewer than attention heads means grouped-query attention."""
    vocab_size: int
    max_position_embeddings: int
    """Longest sequence, tokens."""
    rope_theta: float
    tie_word_embeddings: bool
    """Whether the output head is the input embedding."""
    source: str
    """Where the numbers come from."""

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def qkv_bias(self) -> bool:
        """Whether the query, key and value projections have a bias (Qwen2 does)."""
        return self.model_type == "qwen2"

    def config_values(self) -> dict[str, Any]:
        """The values of Hugging Face's config class for this architecture."""
        values = {key: getattr(self, key) for key in _CONFIG_KEYS}
        if self.model_type == "mistral":
            values["sliding_window"] = None  # as from v0.3 on: attention over the whole sequence
        return values


Shape = Architecture | EncoderDecoder


def num_parameters(arch: Shape) -> int:
    """All parameters, the embeddings included; a tied output head counts once."""
    if isinstance(arch, EncoderDecoder):
        return arch.num_parameters
    embeddings = arch.vocab_size * arch.hidden_size * (1 if arch.tie_word_embeddings else 2)
    return embeddings + arch.num_hidden_layers * parameters_per_layer(arch) + arch.hidden_size


def layer_counts(shape: Shape) -> tuple[int, ...]:
    """How many layers lie in each row of them: of an encoder and a decoder each has its own."""
    both = (shape.num_hidden_layers, shape.num_decoder_layers) if isinstance(shape, EncoderDecoder) else None
    return both or (shape.num_hidden_layers,)


def parameters_per_layer(arch: Architecture) -> int:
    """Parameters of one decoder layer: attention, MLP and two norms."""
    key_value_width = arch.num_key_value_heads * arch.head_dim
    attention = 2 * arch.hidden_size * arch.hidden_size + 2 * arch.hidden_size * key_value_width
    bias = arch.hidden_size + 2 * key_value_width if arch.qkv_bias else 0
    return attention + bias + 3 * arch.hidden_size * arch.intermediate_size + 2 * arch.hidden_size


def matrices(shape: Architecture) -> dict[str, tuple[int, int]]:
    """The linear layers of one decoder layer by name: rows and columns."""
    width, inner, heads = shape.hidden_size, shape.intermediate_size, shape.num_key_value_heads * shape.head_dim
    attention = {"q_proj": (width, width), "k_proj": (width, heads), "v_proj": (width, heads), "o_proj": (width, width)}
    return attention | {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}


LEAD_OUT = ("o_proj", "down_proj")
"""The linear layers of a decoder layer whose inputs are divided where ranks share it; of the others it is the outputs."""


def shared_matrices(matrices: Mapping[str, tuple[int, int]], ranks: int) -> dict[str, tuple[int, int]]:
    """What one of so many ranks that share a layer has of its linear layers; width of input and of output by name."""
    return {
        name: (wide // ranks, out) if name in LEAD_OUT else (wide, out // ranks)
        for name, (wide, out) in matrices.items()
    }


_HUB = "huggingface.co/"

# name, family, (hidden size, MLP width, layers, attention heads, key-value heads), vocabulary, positions, rope theta,
# tied output head, source. Llama 3.1 and 3.2 also scale the rotary frequencies for long contexts; that changes no cost.
_TABLE: tuple[tuple[str, str, tuple[int, int, int, int, int], int, int, float, bool, str], ...] = (
    ("tiny", "llama", (128, 384, 2, 4, 2), 512, 2048, 1e4, False, "made for tests and demos on a CPU"),
    ("tiny-h8", "llama", (128, 384, 2, 8, 8), 512, 2048, 1e4, False, "made for tests of 8 ranks that share layers"),
    ("llama-68m", "llama", (768, 3072, 2, 12, 12), 32000, 2048, 1e4, False, _HUB + "JackFram/llama-68m"),
    (
        "tinyllama-1.1b", "llama", (2048, 5632, 22, 32, 4), 32000, 2048, 1e4, False,
        _HUB + "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    ),
    ("llama3.2-1b", "llama", (2048, 8192, 16, 32, 8), 128256, 131072, 5e5, True, _HUB + "meta-llama/Llama-3.2-1B"),
    ("llama3.2-3b", "llama", (3072, 8192, 28, 24, 8), 128256, 131072, 5e5, True, _HUB + "meta-llama/Llama-3.2-3B"),
    ("llama2-7b", "llama", (4096, 11008, 32, 32, 32), 32000, 4096, 1e4, False, _HUB + "meta-llama/Llama-2-7b-hf"),
    ("llama2-13b", "llama", (5120, 13824, 40, 40, 40), 32000, 4096, 1e4, False, _HUB + "meta-llama/Llama-2-13b-hf"),
    ("llama2-70b", "llama", (8192, 28672, 80, 64, 8), 32000, 4096, 1e4, False, _HUB + "meta-llama/Llama-2-70b-hf"),
    ("llama3.1-8b", "llama", (4096, 14336, 32, 32, 8), 128256, 131072, 5e5, False, _HUB + "meta-llama/Llama-3.1-8B"),
    ("llama3.1-70b", "llama", (8192, 28672, 80, 64, 8), 128256, 131072, 5e5, False, _HUB + "meta-llama/Llama-3.1-70B"),
    ("mistral-7b", "mistral", (4096, 14336, 32, 32, 8), 32768, 32768, 1e6, False, _HUB + "mistralai/Mistral-7B-v0.3"),
    ("mistral-7b-v0.2", "mistral", (4096, 14336, 32, 32, 8), 32000, 32768, 1e6, False, _HUB + "mistralai/Mistral-7B-Instruct-v0.2"),
    ("qwen1.5-7b", "qwen2", (4096, 11008, 32, 32, 32), 151936, 32768, 1e6, False, _HUB + "Qwen/Qwen1.5-7B"),
    ("qwen2-0.5b", "qwen2", (896, 4864, 24, 14, 2), 151936, 131072, 1e6, True, _HUB + "Qwen/Qwen2-0.5B"),
    ("qwen2-1.5b", "qwen2", (1536, 8960, 28, 12, 2), 151936, 131072, 1e6, True, _HUB + "Qwen/Qwen2-1.5B"),
    ("qwen2-7b", "qwen2", (3584, 18944, 28, 28, 4), 152064, 131072, 1e6, False, _HUB + "Qwen/Qwen2-7B"),
)  # fmt: skip


def _presets() -> dict[str, Shape]:
    presets: dict[str, Shape] = {}
    for name, family, (hidden, width, layers, heads, kv_heads), vocab, positions, theta, tied, source in _TABLE:
        presets[name] = Architecture(
            name=name,
            model_type=family,
            hidden_size=hidden,
            intermediate_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            vocab_size=vocab,
            max_position_embeddings=positions,
            rope_theta=theta,
            tie_word_embeddings=tied,
            source=source,
        )
    return presets | encoder_decoder.presets()


PRESETS = _presets()

ALIASES = {arch.source[len(_HUB) :]: name for name, arch in PRESETS.items() if arch.source.startswith(_HUB)}
"""Names on the Hugging Face hub of the presets' models. A folder of that name wins."""


def architecture(model: str) -> Shape:
    """The architecture of a preset, of a checkpoint folder, or of a hub name that a preset stands for.

    Raises RequestError when `model` is none of these.
    """
    if is_checkpoint(model):
        return read_architecture(Path(model))
    name = ALIASES.get(model, model)
    parts = [part for part in re.split(r"[,;\s]+", model) if part]
    if name not in PRESETS and len(parts) > 1 and "/" not in model:
        raise RequestError(
            f"model '{model}': a run has one model. Several are runs of a study, a file with matrix: {{model: [{', '.join(parts)}]}}."
        )
    if name not in PRESETS:
        raise RequestError(
            unknown_name(
                "model",
                model,
                PRESETS,
                next_step="A checkpoint is given by the full path of its folder.",
                meant=_of_its_size(model),
            )
        )
    return PRESETS[name]


def layout_of_model(model: str) -> str:
    """How a preset or the model in a folder, whose config says it, is fed: one of corpus.words.LAYOUTS."""
    if model in PRESETS:
        return SEQ2SEQ if PRESETS[model].model_type in encoder_decoder.MODEL_TYPES else CAUSAL
    config = read_json(Path(model) / "config.json") or {}
    return SEQ2SEQ if encoder_decoder.has_both(config) else CAUSAL


def is_checkpoint(model: str) -> bool:
    """Whether `model` is a folder to load from; a preset's own name is always the preset."""
    return model not in PRESETS and Path(model).is_dir()


def read_architecture(folder: Path) -> Shape:
    """The architecture of the checkpoint in `folder`, from its config.json."""
    from hpc_llm.planning.checkpoint import read_config

    config = read_config(folder)
    model_type = str(config.get("model_type"))
    known = (*MODEL_TYPES, *encoder_decoder.MODEL_TYPES)
    if model_type not in known:
        said = f"is of the family {model_type[:60]}" if config.get("model_type") else "names no family (model_type)"
        raise RequestError(f"{folder / 'config.json'} {said}; layer by layer only {', '.join(known)} are known here.")
    try:
        if model_type in encoder_decoder.MODEL_TYPES:
            return encoder_decoder.from_config(str(folder), config)
        return _from_config(folder, model_type, config)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{folder / 'config.json'} lacks or misspells {error}: is it a language model?") from None


def _from_config(folder: Path, model_type: str, config: Mapping[str, Any]) -> Architecture:
    rope = config.get("rope_parameters") or {}
    heads = int(config["num_attention_heads"])
    return Architecture(
        name=str(folder),
        model_type=model_type,
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_hidden_layers=int(config["num_hidden_layers"]),
        num_attention_heads=heads,
        num_key_value_heads=int(config.get("num_key_value_heads") or heads),
        vocab_size=int(config["vocab_size"]),
        max_position_embeddings=int(config["max_position_embeddings"]),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        source=str(folder / "config.json"),
    )


_NAMED = re.compile(r"^([a-z-]{1,30}?)([0-9]{1,3}(?:\.[0-9]{1,3})?)?-([0-9.]{1,8}[bm])$")
"""Family, its version and the size, in the name of a model."""


def _of_its_size(model: str) -> list[str]:
    """The known model of that family and size whose version is nearest, as qwen2-7b is to qwen2.5-7b."""
    asked = _NAMED.fullmatch(model.lower())
    if asked is None:
        return []
    alike = {
        abs(float(known[2] or 0) - float(asked[2] or 0)): name
        for name in sorted(PRESETS, reverse=True)
        if (known := _NAMED.fullmatch(name)) is not None and (known[1], known[3]) == (asked[1], asked[3])
    }
    return [alike[min(alike)]] if alike else []
