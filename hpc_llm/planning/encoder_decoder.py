"""Models that read with an encoder and write with a decoder: their shapes and how many parameters they hold. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.immutable import dataclass

MODEL_TYPES = ("t5",)
"""Families whose parameters are counted below, and that are trained."""
_BY_DEFAULT = frozenset(
    """bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100 marian mbart mt5 musicgen
    musicgen_melody mvp nllb-moe pegasus pegasus_x plbart prophetnet seamless_m4t seamless_m4t_v2 switch_transformers t5 t5gemma
    t5gemma2 umt5 whisper xlm-prophetnet""".split()
)
"""Families of which transformers takes is_encoder_decoder for true where config.json does not say it."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder:
    """The shape of a T5. Sizes are counts of elements."""

    name: str
    model_type: str
    hidden_size: int
    intermediate_size: int
    """Width of the MLP."""
    num_hidden_layers: int
    """Of the encoder."""
    num_decoder_layers: int
    num_attention_heads: int
    head_dim: int
    vocab_size: int
    relative_positions: int
    """Buckets of distances between tokens, each with a bias for each head."""
    is_gated: bool
    """Whether the MLP has a second matrix that lets the first one through, as from version 1.1 on."""
    tie_word_embeddings: bool
    """Whether the output head is the input embedding."""
    source: str
    """Where the numbers come from."""
    max_position_embeddings: int | None = None
    """None: positions are relative, and no length is too long."""

    @property
    def num_parameters(self) -> int:
        """All parameters, the embeddings included; a tied output head counts once."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        biases = (
            2 * self.relative_positions * self.num_attention_heads
        )  # the first layer of each half holds them for all
        attention = 4 * self.hidden_size * self.num_attention_heads * self.head_dim
        mlp = (3 if self.is_gated else 2) * self.hidden_size * self.intermediate_size
        encoder = self.num_hidden_layers * (attention + mlp + 2 * self.hidden_size)
        decoder = self.num_decoder_layers * (2 * attention + mlp + 3 * self.hidden_size)
        return embeddings + biases + encoder + decoder + 2 * self.hidden_size

    def config_values(self) -> dict[str, Any]:
        """The values of Hugging Face's config class for this architecture."""
        return {
            "d_model": self.hidden_size,
            "d_ff": self.intermediate_size,
            "d_kv": self.head_dim,
            "num_layers": self.num_hidden_layers,
            "num_decoder_layers": self.num_decoder_layers,
            "num_heads": self.num_attention_heads,
            "vocab_size": self.vocab_size,
            "relative_attention_num_buckets": self.relative_positions,
            "feed_forward_proj": "gated-gelu" if self.is_gated else "relu",
            "tie_word_embeddings": self.tie_word_embeddings,
            "decoder_start_token_id": 0,
        }


def has_both(config: Mapping[str, Any]) -> bool:
    """Whether the model of a config.json has an encoder and a decoder."""
    return bool(config.get("is_encoder_decoder", config.get("model_type") in _BY_DEFAULT))


def from_config(name: str, config: Mapping[str, Any]) -> EncoderDecoder:
    """The shape that a config.json of T5 describes. Raises KeyError, TypeError or ValueError where it does not."""
    layers = int(config["num_layers"])
    return EncoderDecoder(
        name=name,
        model_type=str(config["model_type"]),
        hidden_size=int(config["d_model"]),
        intermediate_size=int(config["d_ff"]),
        num_hidden_layers=layers,
        num_decoder_layers=int(config.get("num_decoder_layers") or layers),
        num_attention_heads=int(config["num_heads"]),
        head_dim=int(config["d_kv"]),
        vocab_size=int(config["vocab_size"]),
        relative_positions=int(config.get("relative_attention_num_buckets", 32)),
        is_gated=str(config.get("feed_forward_proj", "relu")).startswith("gated-"),
        tie_word_embeddings=has_tied_head(config),
        source=f"{name}/config.json",
    )


def has_tied_head(config: Mapping[str, Any]) -> bool:
    """Whether the output head of a T5 is its embedding. transformers 5 writes that it is, whatever it is, and how it scales."""
    return bool(config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True)))


def presets() -> dict[str, EncoderDecoder]:
    """The published sizes of Flan-T5, which are those of T5 1.1."""
    sizes = {
        "small": (512, 1024, 8, 6),
        "base": (768, 2048, 12, 12),
        "large": (1024, 2816, 24, 16),
        "xl": (2048, 5120, 24, 32),
    }
    return {
        f"flan-t5-{size}": EncoderDecoder(
            name=f"flan-t5-{size}",
            model_type="t5",
            hidden_size=hidden,
            intermediate_size=width,
            num_hidden_layers=layers,
            num_decoder_layers=layers,
            num_attention_heads=heads,
            head_dim=64,
            vocab_size=32128,
            relative_positions=32,
            is_gated=True,
            tie_word_embeddings=False,
            source=f"huggingface.co/google/flan-t5-{size}",
        )
        for size, (hidden, width, layers, heads) in sizes.items()
    }
