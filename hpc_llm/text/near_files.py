"""Which file may be meant by the name of one that is not there. Standard library only."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from itertools import islice
from pathlib import Path

_LOOKED_AT = 10_000
"""Entries of a folder; no folder of one's own files has as many."""
_SHOWN = 5


def near_file(path: str | Path) -> str | None:
    """The file beside it whose name is nearly the same, or the same but for its suffix or its case; None where there is none."""
    folder, name = os.path.split(path)
    names = _names(folder)
    stem = os.path.splitext(name)[0].lower()
    same = [one for one in names if os.path.splitext(one)[0].lower() == stem or one.lower() == name.lower()]
    of_kind = {os.path.splitext(one)[0]: one for one in names if os.path.splitext(one)[1] == os.path.splitext(name)[1]}
    close = [of_kind[one] for one in difflib.get_close_matches(os.path.splitext(name)[0], of_kind, n=1)]
    found = (same or close)[:1]
    return os.path.join(folder, found[0]) if found else None


def missing_file(path: str | Path, suffixes: Collection[str] = ()) -> str:
    """What is said of a file that is not there: which one may be meant, else which there are with such a suffix.

    It begins in the middle of a sentence and ends with its full stop.
    """
    near, folder = near_file(path), os.path.dirname(path) or "."
    if near is not None:
        return f"there is no such file: did you mean {near}?"
    names = sorted(one for one in _names(folder) if os.path.splitext(one)[1] in suffixes)
    if not names:
        return "there is no such file."
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"there is no such file. In {folder} are {', '.join(names[:_SHOWN])}{more}."


def _names(folder: str) -> list[str]:
    """The regular files of a folder; none where it cannot be looked into."""
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(one.name for one in islice(entries, _LOOKED_AT) if one.is_file())
    except OSError:
        return []
