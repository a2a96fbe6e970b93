"""From pieces of text to tokens, of which some are to be learned: with the model's tokenizer, or byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from hpc_llm.corpus.key import BYTES, tokenizer_digest
from hpc_llm.corpus.words import CAUSAL
from hpc_llm.errors import ModelFileError
from hpc_llm.worker.model.byte_tokenizer import BYTE_END
from hpc_llm.worker.preparing.chat import Render, plain_chatml
from hpc_llm.worker.preparing.pieces import Piece

Run = tuple[list[int], bool]
"""Tokens one after the other that are all to be learned, or all not."""


class Encoder(Protocol):
    """What makes tokens of text."""

    def plain(self, text: str) -> list[int]:
        """The tokens of a part of a text, nothing in front and nothing behind."""

    @property
    def end(self) -> int:
        """The token behind a text."""

    def samples(self, samples: Sequence[Sequence[Piece]]) -> list[list[Run]]:
        """The tokens of each sample, with what belongs in front and behind."""

    @property
    def render(self) -> Render:
        """How messages are written."""


def encoder_for(model: str, layout: str) -> Encoder:
    """That of the model's folder, else bytes."""
    if tokenizer_digest(model) == BYTES:
        return Bytes()
    return OfTransformers(Path(model), is_causal=layout == CAUSAL)


class Bytes:
    """Each byte of the UTF-8 text is a token, and one more ends it."""

    end = BYTE_END
    render = staticmethod(plain_chatml)

    def plain(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def samples(self, samples: Sequence[Sequence[Piece]]) -> list[list[Run]]:
        return [[*((self.plain(piece.text), piece.is_trained) for piece in one), ([BYTE_END], True)] for one in samples]


class OfTransformers:
    """The tokenizer in a folder, as transformers reads it."""

    def __init__(self, folder: Path, *, is_causal: bool) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except ImportError:
            raise
        except (
            Exception
        ) as error:  # each of the libraries that read tokenizers has its own, one of them no class at all
            why = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
            raise ModelFileError(f"the tokenizer in {folder} cannot be used: {why}. Bring its files again.") from error
        self._tokenizer.model_max_length = int(1e30)  # how long a row may be is the plan's to say
        self._is_causal = is_causal
        ids = self._tokenizer.eos_token_id
        self.end: int = ids if ids is not None else 0
        bos = self._tokenizer.bos_token_id
        self._front = [bos] if bos is not None and bos in self._tokenizer("").input_ids else []

    def plain(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return tokens

    def render(self, messages: Sequence[Any], asks: bool) -> str:
        if not self._tokenizer.chat_template:
            return plain_chatml(messages, asks)
        text: str = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=asks)
        return text

    def samples(self, samples: Sequence[Sequence[Piece]]) -> list[list[Run]]:
        if not self._is_causal:
            return [self._source_and_target(one) for one in samples]
        runs = self._by_offsets(samples) if self._tokenizer.is_fast else [self._piecewise(one) for one in samples]
        return [self._closed(one, pieces) for one, pieces in zip(runs, samples, strict=True)]

    def _source_and_target(self, pieces: Sequence[Piece]) -> list[Run]:
        """What is read, all before the last answer, and what is written, that answer, each as the tokenizer ends it.

        An answer that stands earlier in a conversation is read like the questions; what comes behind the last one is nobody's.
        """
        last = max((number for number, piece in enumerate(pieces) if piece.is_trained), default=len(pieces))
        source = "".join(piece.text for piece in pieces[:last])
        target = "".join(piece.text for piece in pieces[last : last + 1])
        return [(self._tokenizer(source).input_ids, False), (self._tokenizer(text_target=target).input_ids, True)]

    def _by_offsets(self, samples: Sequence[Sequence[Piece]]) -> list[list[Run]]:
        """Whole texts at once: words that lie across a border become the tokens that they are in a text."""
        texts = ["".join(piece.text for piece in one) for one in samples]
        found = self._tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        return [
            _runs(tokens, _trained(offsets, pieces))
            for tokens, offsets, pieces in zip(found.input_ids, found.offset_mapping, samples, strict=True)
        ]

    def _piecewise(self, pieces: Sequence[Piece]) -> list[Run]:
        return [(self.plain(piece.text), piece.is_trained) for piece in pieces]

    def _closed(self, runs: list[Run], pieces: Sequence[Piece]) -> list[Run]:
        """With the token that begins a text where the tokenizer has it, and the one that ends it, also of an empty answer."""
        tokens = [token for part, _ in runs for token in part]
        if self._front and tokens[:1] != self._front:
            is_trained = runs[0][1] if runs else False
            runs = [(self._front, is_trained), *runs]
        if self._tokenizer.eos_token_id is None or not runs or not pieces[-1].is_trained:
            return runs
        is_ended = runs[-1][1] and self._is_ended(tokens)  # else it would be the prompt's end
        return runs if is_ended else [*runs, ([self.end], True)]

    def _is_ended(self, tokens: Sequence[int]) -> bool:
        """Whether the token that ends a text stands last; templates write blanks behind it, as ChatML its line's end."""
        for token in reversed(tokens):
            if token == self.end:
                return True
            if self._tokenizer.decode([token]).strip():
                return False
        return False


def _trained(offsets: Sequence[tuple[int, int]], pieces: Sequence[Piece]) -> list[bool]:
    """Whether each token holds a character that is to be learned."""
    spans, at = [], 0
    for piece in pieces:
        if piece.text:
            spans.append((at, at + len(piece.text), piece.is_trained))
        at += len(piece.text)
    found, first = [], 0
    for begin, end in offsets:
        while first < len(spans) - 1 and spans[first][1] <= begin:
            first += 1
        found.append(
            any(
                trained and low < max(end, begin + 1) and begin < high
                for low, high, trained in spans[first : first + 3]
            )
        )
    return found


def _runs(tokens: Sequence[int], trained: Sequence[bool]) -> list[Run]:
    runs: list[Run] = []
    for token, is_trained in zip(tokens, trained, strict=True):
        if not runs or runs[-1][1] != is_trained:
            runs.append(([], is_trained))
        runs[-1][0].append(token)
    return runs
