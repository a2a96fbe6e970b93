"""Numbers in what other programs print and in what people write: only what is one, written as they write it, and of a length that can be meant."""

from __future__ import annotations

import re

_SEVERAL = re.compile(r"(?: ?(?!0[0-9])[0-9.]{1,20} ?(?:,(?!$)|$)){2,100}")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3}){1,5}")
MOST_DIGITS = 18
"""Of a number that fits 64 bits; Python refuses to read one of some thousands, and counts to none of them."""


def without_commas(text: str) -> str | None:
    """A number with commas between its thousands as one without; None where it has none.

    >>> without_commas("1,000"), without_commas("1,250,000"), without_commas("1,2"), without_commas("128,64")
    ('1000', '1250000', None, None)
    """
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else None


def are_several(text: str) -> bool:
    """Whether it is several numbers with commas between them: none of them begins as `000` does.

    >>> are_several("1,2"), are_several("0.5,1"), are_several("1,000"), are_several("7")
    (True, True, False, False)
    """
    return _SEVERAL.fullmatch(text) is not None


def whole_number(text: str) -> int | None:
    """The number that `text` is, None where it is none: a superscript is a digit to `str.isdigit` and no number to `int`.

    >>> whole_number("007"), whole_number("²"), whole_number("٣"), whole_number(" 7"), whole_number("-7"), whole_number("9" * 5000)
    (7, None, None, None, None, None)
    """
    return int(text) if len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal() else None
