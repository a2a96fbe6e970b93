"""Conversations in the words of the model's own chat template, and which of them the model is to learn: its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpc_llm.errors import DataFileError, ModelFileError, WorkerError
from hpc_llm.worker.preparing.limits import MEMORY_BYTES, SECONDS, TakesTooLong, limited
from hpc_llm.worker.preparing.pieces import Chat, Piece

ASSISTANT = "assistant"

Render = Callable[[Sequence[Mapping[str, Any]], bool], str]
"""Messages as one text; with True up to where the model begins to answer."""


def chat_with(render: Render) -> Chat:
    """What cuts messages into pieces, as `render` writes them."""

    def pieces(messages: Sequence[Mapping[str, Any]], place: str) -> list[Piece]:
        try:
            with limited():
                return cut(messages, render, place)
        except WorkerError:
            raise
        except (TakesTooLong, MemoryError):
            raise ModelFileError(
                f"{place}: the model's chat template does not come to its end: after {SECONDS:.0f} s, or {MEMORY_BYTES >> 20} MiB of "
                "memory, for one conversation it is stopped. Mend chat_template in the model's folder, or shorten the row."
            ) from None
        except Exception as error:  # a template is a program of the model's makers
            raise DataFileError(f"{place}: the chat template refuses these messages: {error}.") from error

    return pieces


def cut(messages: Sequence[Mapping[str, Any]], render: Render, place: str) -> list[Piece]:
    """The conversation in pieces. A template that changes earlier turns lets only those be learned that stay as they were."""
    whole = render(messages, False)
    found, at = [], 0
    for number, message in enumerate(messages):
        if message["role"] != ASSISTANT:
            continue
        question, answered = render(messages[:number], True), render(messages[: number + 1], False)
        if at <= len(question) and whole.startswith(answered) and answered.startswith(question):
            found += [Piece(whole[at : len(question)], False), Piece(answered[len(question) :], True)]
            at = len(answered)
    if not found:
        raise DataFileError(
            f"{place}: no message of the assistant can be learned from, as the chat template writes them."
        )
    return [*found, Piece(whole[at:], False)] if at < len(whole) else found


def plain_chatml(messages: Sequence[Mapping[str, Any]], asks: bool) -> str:
    """ChatML, for a tokenizer that has no template of its own; its marks are ordinary text then."""
    written = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    return f"{written}<|im_start|>{ASSISTANT}\n" if asks else written
