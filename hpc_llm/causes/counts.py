"""How far a line says that its step is: `Epoch [1/1] (500/500)`."""

from __future__ import annotations

import re

_LONGEST = 1 << 10
"""Bytes of a line that are looked at."""
_COUNT = re.compile(
    rb"(?i)(?P<epoch>\bep(?:och)?s?['\"]?[ \t:=#\[(]{0,8})?(?<![\d/.,])\b(?P<number>\d{1,12}) {0,8}/ {0,8}(?P<all>\d{1,12})\b(?![/%]|[.,]\d| ?[KMGTkmgt]i?B\b)"
)
"""A number and that of all; no date, no amount of memory."""


def of(line: bytes) -> bool | None:
    """Whether all that a line counts is at its end; None where it counts no steps, or epochs alone: a step need not be the last of its own.

    >>> of(b"Epoch:[1/1](500/500), loss: 1.9"), of(b"Epoch:[1/1](499/500), loss: 1.9"), of(b"Epoch 3/3 loss: 1.9"), of(b"step 7: loss 1.9")
    (True, False, None, None)
    """
    found = list(_COUNT.finditer(line[:_LONGEST]))
    if any(int(one["number"]) < int(one["all"]) for one in found):
        return False
    is_over = any(int(one["number"]) == int(one["all"]) > 0 and one["epoch"] is None for one in found)
    return True if is_over else None
