"""Which tokens a text becomes: those of the checkpoint's tokenizer, or its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.errors import RequestError, WorkerError
from hpc_llm.planning.checkpoint import has_tokenizer

BYTE_END = 256
"""Token after each text in the byte-level vocabulary, where a token is a byte."""

Tokenize = Callable[[str], Sequence[int]]


def find_tokenizer(model: str, vocab_size: int, loaded: bool = False) -> tuple[Tokenize, int]:
    """The tokenizer of a checkpoint folder, else bytes as tokens; and the token that ends a text.

    Bytes are refused for weights that were `loaded`: they have learned other tokens.
    """
    if has_tokenizer(Path(model)):
        return _own_tokenizer(model, vocab_size)
    if loaded:
        raise WorkerError(f"the folder {model} holds no tokenizer, and its model knows no other tokens.")
    if vocab_size <= BYTE_END:
        raise RequestError(
            f"a vocabulary of {vocab_size} is too small for bytes as tokens, which need {BYTE_END + 1}: choose a "
            "larger model, or a checkpoint folder with a tokenizer.json."
        )
    return lambda text: text.encode("utf-8"), BYTE_END


def _own_tokenizer(folder: str, vocab_size: int) -> tuple[Tokenize, int]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0

    def tokenize(text: str) -> Sequence[int]:
        tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        highest = max(tokens, default=0)
        if max(highest, end) >= vocab_size:  # on a GPU it would end in an assertion that names nothing
            raise WorkerError(
                f"the tokenizer in {folder} gives token {max(highest, end)}, its model has {vocab_size} tokens."
            )
        return tokens

    return tokenize, end
