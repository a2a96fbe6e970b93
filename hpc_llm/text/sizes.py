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
