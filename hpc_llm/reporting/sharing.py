"""Keeping equal parts of many records once: the plans and scripts of one study differ in a few lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


class Pool:
    """Gives back, for each value, the equal one that it was given first."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def record(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same record with names and values of which there is one only.

        >>> pool = Pool()
        >>> one, two = pool.record({"a": [1, 2], "b": 3.5}), pool.record({"a": [1, 2], "b": 4.5})
        >>> one["a"] is two["a"], two
        (True, {'a': [1, 2], 'b': 4.5})
        """
        return {sys.intern(name): self._one(value) for name, value in values.items()}

    def lines(self, text: str | None) -> tuple[str, ...]:
        """The lines of a text."""
        return tuple(map(sys.intern, text.split("\n"))) if text else ()

    def _one(self, value: Any) -> Any:
        if isinstance(value, (int, float)) or value is None:
            return value
        return self._known.setdefault(repr(value), value)
