"""Commas in numbers: they part thousands, or stand before decimals, and where it is not certain which, there is no number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")

LOSS_UNREAD = "loss_unread"
"""Under this name a step line says that its loss is printed and is no number to us, for a decimal comma."""
IN_A_NUMBER = re.compile(rb"(?<![\w.,])[-+]?\d[\d.]*,[\d.,]*\d")
_DECIMAL = re.compile(rb"(?<![\w.,\[(])[-+]?\d{1,20},(?:\d{1,2}|\d{4,20})(?![\d.,)\]])")
"""A comma that parts no thousands; in brackets it may part the members of a list."""
_COUNTS = frozenset(("step", "order", "total_steps"))
"""What is printed without decimals and without thousands."""


def read(column: str, value: V | None, text: bytes) -> dict[str, V | int]:
    """What a printed number comes to: itself, or, where its comma makes it none, that a loss was printed.

    >>> read("loss", 1.5, b"1.5"), read("loss", None, b"1,5"), read("grad_norm", None, b"1,5")
    ({'loss': 1.5}, {'loss_unread': 1}, {})
    """
    if value is not None:
        return {column: value}
    return {LOSS_UNREAD: 1} if column == "loss" and b"," in text else {}


def says_loss(found: Mapping[str, object]) -> bool:
    """Whether a loss was printed, whatever it came to."""
    return "loss" in found or LOSS_UNREAD in found


def certain(found: Mapping[str, V], line: bytes) -> Mapping[str, V | int]:
    """Of a line with a decimal comma the counts alone: which of its numbers had one nobody knows any more.

    >>> certain({"step": 4, "loss": 2516}, b"step 4 loss 6,25")
    {'step': 4, 'loss_unread': 1}
    """
    if b"," not in line or not _DECIMAL.search(line):
        return found
    unread = {LOSS_UNREAD: 1} if says_loss(found) else {}
    return {name: value for name, value in found.items() if name in _COUNTS} | unread
