"""Whether there is room for what is to come, asked before the first byte."""

from __future__ import annotations

import os
from pathlib import Path

from hpc_llm.errors import RequestError

_UNITS = ("B", "kB", "MB", "GB", "TB")


def check_room(folder: Path, needed: int) -> None:
    """Raise RequestError where the file system of `folder` has fewer than `needed` bytes free. Quotas it does not show."""
    place = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        raise RequestError(f"--to {folder}: you may not write in {place}. Give a folder of your own.")
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise RequestError(
            f"--to {folder}: {sized(needed)} are needed, {sized(free)} are free on the file system of {place}. "
            "Nothing was fetched: make room there, or give a folder elsewhere."
        )


def sized(size: float) -> str:
    """A number of bytes as people say it.

    >>> sized(0), sized(999), sized(13_476_900_000), sized(1_500_000)
    ('0 B', '999 B', '13.5 GB', '1.5 MB')
    """
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}" if unit else f"{size:.0f} B"
