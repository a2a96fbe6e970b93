"""Which share of the layers is recomputed in the backward pass: how it is written, and which layers that are. Standard library only."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

Share: TypeAlias = bool | float
"""True is all layers and False none, as plans have always said it; a number is above 0 and below 1."""
AUTO = "auto"
"""As few layers as the estimate says are enough."""
VALID = "valid are true, false, auto, or a share of the layers from 0 to 1, as 0.25"
_VALID_LETTERS = "valid are r (all layers), a share above 0 and up to 1 as r0.25, and rauto (as few as fit)"


def read_share(value: Any) -> Share | str:
    """The share that a value of a file or a setting stands for, or AUTO. Raises ValueError for what is none.

    >>> read_share(1), read_share(0.0), read_share(0.25), read_share(True), read_share("auto")
    (True, False, 0.25, True, 'auto')
    """
    if isinstance(value, bool) or value == AUTO:
        return value  # type: ignore[no-any-return]
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(VALID)
    return bool(value) if value in (0, 1) else float(value)


def letter_of(share: Share | str) -> str:
    """How a method's name says it; empty where nothing is recomputed.

    >>> letter_of(True), letter_of(0.25), letter_of("auto"), letter_of(False)
    ('r', 'r0.25', 'rauto', '')
    """
    if isinstance(share, bool):
        return "r" if share else ""
    return f"r{share if isinstance(share, str) else format(share, 'g')}"


def share_of_letter(letter: str) -> Share | str | None:
    """The share that a part of a method's name stands for, None for another part. Raises ValueError for one that cannot be.

    >>> share_of_letter("r"), share_of_letter("r0.25"), share_of_letter("rauto"), share_of_letter("o")
    (True, 0.25, 'auto', None)
    """
    if letter in ("r", f"r{AUTO}"):
        return read_share(True if letter == "r" else AUTO)
    if not re.match(r"r[-.\d]", letter):
        return None
    try:
        share = read_share(float(letter[1:]))
    except ValueError:
        share = False
    if share is False:
        raise ValueError(_VALID_LETTERS)
    return share


def in_words(share: Share | str) -> str:
    """Of which layers activations are recomputed.

    >>> in_words(0.25), in_words("auto")
    ('a share of 0.25 of the layers', 'as few layers as fit')
    """
    if isinstance(share, bool):
        return "all layers" if share else "no layer"
    return "as few layers as fit" if share == AUTO else f"a share of {share:g} of the layers"


def spread(share: Share, layers: int) -> list[int]:
    """Which of so many layers in a row are recomputed, counted from 0: the share rounded to whole layers, one at least, evenly spread.

    The first one is among them, and the last one only where all are: what it keeps is given up before any is made anew.

    >>> spread(0.25, 8), spread(0.75, 4), spread(0.1, 2), spread(True, 2), spread(False, 2)
    ([0, 4], [0, 1, 2], [0], [0, 1], [])
    """
    number = min(max(int(share * layers + 0.5), 1), layers) if share else 0
    return [one * layers // number for one in range(number)]
