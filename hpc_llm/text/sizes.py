"""Bytes in words."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def readable(size: float) -> str:
    """A number of bytes in the unit that fits it.

    >>> readable(0), readable(1023), readable(25 << 20), readable(1 << 30), readable(83.96 * 2**30), readable(5000 * 2**40)
    ('0 bytes', '1023 bytes', '25.0 MiB', '1.0 GiB', '84.0 GiB', '5000.0 TiB')
    """
    unit = 0
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} bytes"


def gib_apart(one: float, other: float, digits: int = 1) -> tuple[str, str]:
    """Both in GiB, with more digits than those where fewer would show two sizes as one.

    >>> gib_apart(3 << 30, 3 << 29), gib_apart(19.9 * 2**30, 19.5 * 2**30, digits=0), gib_apart(1, 1)
    (('3.0 GiB', '1.5 GiB'), ('19.9 GiB', '19.5 GiB'), ('0.0 GiB', '0.0 GiB'))
    """
    texts = (f"{one / 2**30:.{digits}f} GiB", f"{other / 2**30:.{digits}f} GiB")
    is_told = texts[0] != texts[1] or one == other or digits > 2
    return texts if is_told else gib_apart(one, other, digits + 1)
