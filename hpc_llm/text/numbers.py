"""Whole numbers in what other programs print: only what is one, written as they write it, and of a length that can be meant."""

from __future__ import annotations

MOST_DIGITS = 18
"""Of a number that fits 64 bits; Python refuses to read one of some thousands, and counts to none of them."""


def whole_number(text: str) -> int | None:
    """The number that `text` is, None where it is none: a superscript is a digit to `str.isdigit` and no number to `int`.

    >>> whole_number("007"), whole_number("²"), whole_number("٣"), whole_number(" 7"), whole_number("-7"), whole_number("9" * 5000)
    (7, None, None, None, None, None)
    """
    return int(text) if len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal() else None
