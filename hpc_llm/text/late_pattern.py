"""Patterns that are compiled when they are first asked: a large one takes a millisecond, and most requests need few. Standard library only."""

from __future__ import annotations

import re
from typing import Any, cast


def late_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """What `re.compile` gives of the same, compiled at its first use; an error in it shows only then.

    >>> late_pattern(r"[a-z]+\\d").search("42 abc7")[0]
    'abc7'
    """
    return cast(re.Pattern[str], LatePattern(text, flags))


class LatePattern:
    """Stands for a pattern until it is used."""

    def __init__(self, text: str, flags: int) -> None:
        self._said = text, flags
        self._compiled: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # who copies it or looks at its type asks for these
            raise AttributeError(name)
        self._compiled = self._compiled or re.compile(*self._said)
        found = getattr(self._compiled, name)
        self.__dict__[name] = found  # the next look does not come here
        return found
