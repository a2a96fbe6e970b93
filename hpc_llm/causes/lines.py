"""Lines of a text by what they hold: a choice between many patterns takes its time at each letter of a log, a search for words hardly any."""

from __future__ import annotations

import functools
from collections.abc import Iterable

_DIGITS = b"0123456789"
_SHORT = 1 << 12
"""Bytes of a text that is searched as it is."""


def lines_with(text: bytes, words: Iterable[bytes]) -> list[tuple[int, int]]:
    r"""Where each line begins and ends that holds one of the words, in order.

    >>> lines_with(b"a step\nan end\nanother step", [b"step", b"p"])
    [(0, 6), (14, 26)]
    """
    found: dict[int, int] = {}
    for word in words:
        at = text.find(word)
        while at >= 0:
            end = text.find(b"\n", at)
            end = len(text) if end < 0 else end
            found[text.rfind(b"\n", 0, at) + 1] = end
            at = text.find(word, end)
    return sorted(found.items())


def without_numbers(text: bytes) -> bytes:
    """What holds all that the text does of which `is_without_numbers`, and some more: its lines without their digits, each once. What
    training prints for each step is the same line then."""
    return text if len(text) < _SHORT else b"\n".join(set(text.translate(None, _DIGITS).split(b"\n")))


@functools.cache
def is_without_numbers(literal: bytes) -> bool:
    """Whether `without_numbers` of a text holds it where the text does: it has no digit and lies on one line."""
    return literal.translate(None, _DIGITS + b"\n") == literal
