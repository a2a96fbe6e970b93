"""Values of records that anybody may have edited: of the right type and in a sensible range, or missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from hpc_llm.records.metrics import is_figure
from hpc_llm.records.possible import bounded, impossible, is_possible
from hpc_llm.records.run import Outcome

_FIRST, _LAST = 946_684_800.0, 7_258_118_400.0
"""Unix time of the years 2000 and 2200: no run began before or after."""
_LONGEST_S = 100 * 366 * 86400.0
_LARGEST = 1 << 62


class Fields:
    """The values of one record, each asked for by its type; what is of another type is remembered as a damage."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self.damages: list[str] = []

    def text(self, name: str) -> str | None:
        value = self._record.get(name)
        found: str | None = self._checked(name, value, isinstance(value, str))
        return None if found is None else bounded(name, found)

    def whole(self, name: str, *, least: int = -_LARGEST) -> int | None:
        value = self._record.get(name)
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value < _LARGEST
        found: int | None = self._checked(name, value, fits)
        return found

    def seconds(self, name: str) -> float | None:
        """A duration."""
        value = self._record.get(name)
        found: float | None = self._checked(name, value, is_figure(value) and 0 <= value <= _LONGEST_S)
        return found

    def rate(self, name: str) -> float | None:
        """A figure that a worker measured."""
        value = self._record.get(name)
        found: float | None = self._checked(name, value, is_possible(name, value))
        return found

    def moment(self, name: str) -> float | None:
        """Unix time, also where it is written as ISO 8601."""
        value = self._record.get(name)
        if isinstance(value, str):
            value = moment_of(value)
        found: float | None = self._checked(name, value, is_figure(value) and _FIRST <= value <= _LAST)
        return found

    def mapping(self, name: str) -> dict[str, Any] | None:
        value = self._record.get(name)
        found: dict[str, Any] | None = self._checked(name, value, isinstance(value, dict))
        return found

    def look_at_figures(self) -> None:
        """Remember those that cannot be."""
        self.damages += [f"its {name} is no possible figure" for name in impossible(self._record)]

    def _checked(self, name: str, value: Any, fits: bool) -> Any:
        if fits or value is None:
            return value
        self.damages.append(f"its {name} is {_kind(value)}")
        return None


def moment_of(text: str) -> float:
    """Unix time of an ISO 8601 text; not a number where it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return math.nan


def iso(moment: float) -> str:
    """ISO 8601 of a Unix time, in UTC."""
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")


def outcome_of(word: Any) -> Outcome:
    """The outcome that a record names; one that names none was written on a good end."""
    try:
        return Outcome(word or Outcome.COMPLETED)
    except ValueError:
        return Outcome.UNKNOWN


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "true or false", dict: "an object", list: "a list"}
    return kinds.get(type(value), "no sensible number")
