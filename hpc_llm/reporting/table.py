"""Tables of the report: rows of named cells, each under a number that it keeps wherever it stands. Missing is None."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Cells = dict[str, Any]
"""One row: column -> value."""


class Table:
    """Rows in order, each under its number."""

    def __init__(self, columns: Iterable[str], rows: Mapping[int, Cells] | Sequence[Cells]) -> None:
        """`rows` may lack columns; without numbers of their own they are numbered from 0."""
        self.columns = list(columns)
        self.rows: dict[int, Cells] = dict(rows if isinstance(rows, Mapping) else enumerate(rows))
        for row in self.rows.values():
            for name in self.columns:
                row.setdefault(name, None)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Cells]:
        return iter(self.rows.values())

    def __getitem__(self, number: int) -> Cells:
        return self.rows[number]

    def items(self) -> Iterable[tuple[int, Cells]]:
        """Numbers and rows."""
        return self.rows.items()

    @property
    def first(self) -> Cells:
        return next(iter(self))

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self]

    def known(self, name: str) -> list[Any]:
        """The values of a column that are there."""
        return [value for value in self.column(name) if value is not None]

    def only(self, numbers: Iterable[int]) -> Table:
        """The rows of these numbers, in this order."""
        return Table(self.columns, {number: self.rows[number] for number in numbers})

    def where(self, test: Callable[[Cells], object]) -> Table:
        """The rows that pass."""
        return self.only(number for number, row in self.items() if test(row))

    def copy(self) -> Table:
        """Rows that can be changed without changing these."""
        return Table(self.columns, {number: dict(row) for number, row in self.items()})

    def add(self, name: str, values: Iterable[Any]) -> None:
        """Set a column of all rows, in their order."""
        if name not in self.columns:
            self.columns.append(name)
        for row, value in zip(self, values, strict=True):
            row[name] = value

    def sorted_by(self, names: Sequence[str]) -> Table:
        """The rows in order, numbered anew; what is missing stands last, equal rows as they were."""
        return Table(self.columns, sorted(self, key=lambda row: [_place(row[name]) for name in names]))


def _place(value: Any) -> tuple[int, float, str]:
    """Numbers before texts before what is missing: no two kinds are compared."""
    if value is None:
        return (2, 0.0, "")
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def number_of(value: object) -> float | None:
    """A figure as a finite number, None where it is none.

    >>> number_of("1e3"), number_of("fast"), number_of(float("inf"))
    (1000.0, None, None)
    """
    if not isinstance(value, (int, float, str)) or (isinstance(value, str) and "_" in value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
