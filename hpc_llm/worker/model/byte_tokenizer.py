"""A tokenizer whose tokens are bytes, as transformers loads it: of models that were trained on text and brought none.

Token N is byte N, as prepared data have it, and token 256 ends a text.
"""

from __future__ import annotations

from pathlib import Path

END = "<|end|>"
BYTE_END = 256
"""Token after each text where a token is a byte."""


def save_byte_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json` and what belongs to it into the folder of a model."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(vocab=_letters(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END, special=True, normalized=False)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)


def _letters() -> dict[str, int]:
    """The printable letter by which byte-level tokenizers write each byte: its own where it has one, else from 256 on."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + k): byte for k, byte in enumerate(others)}
