"""A run's place in its study: what the record of the run keeps of the experiment file beside the plan.

And the arithmetic of a matrix: all combinations of the values of its axes, less those that are excluded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import prod
from typing import Any, Generic, TypeVar

from hpc_llm.errors import RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.planning.reference import Reference, read_reference
from hpc_llm.records.run import Outcome

MOST_RUNS = 10_000
"""Of one study."""
LONGEST_NAME = 200
EXPECTABLE = tuple(outcome.value for outcome in Outcome if outcome is not Outcome.UNKNOWN)
"""How a run may be expected to end."""

T = TypeVar("T")
Combination = dict[str, Any]
"""Axis -> value."""


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """One run of a study."""

    study: str
    name: str
    expect: str | None = None
    """The outcome that is a success; None means that it completes."""
    reference: Mapping[str, Reference] = field(default_factory=dict)
    """Result -> published figure."""
    smoke: bool = False
    """Whether it is a small run that only shows that the study works."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """What the runs of the study do not all have in common: option, or `set.PATH` -> value as text."""
    is_named: bool = False
    """Whether the file calls it so; else its name follows from what sets it apart. No record keeps that."""
    changed: tuple[str, ...] = ()
    """Options by which the command line made another run of it than the file describes."""

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "study": self.study,
            "name": self.name,
            "expect": self.expect,
            "reference": {name: one.to_dict() for name, one in self.reference.items()},
            "smoke": self.smoke,
            "differs": dict(self.differs),
            "changed": list(self.changed),
        }

    @classmethod
    def of_record(cls, record: Any) -> StudyRun | None:
        """What a record keeps, which anybody may have written: what cannot be is left out. None where there is no study."""
        if not isinstance(record, Mapping) or not _is_name(record.get("study")) or not _is_name(record.get("name")):
            return None
        expect, differs, changed = record.get("expect"), record.get("differs"), record.get("changed")
        return cls(
            study=record["study"],
            name=record["name"],
            expect=expect if expect in EXPECTABLE else None,
            reference=_references_of(record.get("reference")),
            smoke=record.get("smoke") is True,
            differs=_texts(differs) if isinstance(differs, Mapping) else {},
            changed=tuple(_texts(dict.fromkeys(changed, ""))) if isinstance(changed, list) else (),
        )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def _texts(values: Mapping[Any, Any]) -> dict[str, str]:
    return {k: v for k, v in values.items() if isinstance(k, str) and isinstance(v, str)}


def _references_of(record: Any) -> dict[str, Reference]:
    found: dict[str, Reference] = {}
    for name, value in record.items() if isinstance(record, Mapping) else ():
        with contextlib.suppress(RequestError):
            found[name] = read_reference(str(name), value, (name,), "reference")
    return found


def combinations(
    axes: Mapping[str, Sequence[Any]], excluded: Sequence[Mapping[str, Any]], where: str
) -> list[Combination]:
    """All combinations of the values of `axes`, in order, but those that agree with an entry of `excluded` in all it names.

    >>> combinations({"method": ["z2", "z3"], "seed": [1, 2]}, [{"method": "z3", "seed": 2}], "x.yaml")
    [{'method': 'z2', 'seed': 1}, {'method': 'z2', 'seed': 2}, {'method': 'z3', 'seed': 1}]

    Raises:
        RequestError: there would be more than a study may have.
    """
    if prod(map(len, axes.values())) > MOST_RUNS:
        raise RequestError(f"{where}: the matrix has more than {MOST_RUNS} combinations. Make it several files.")
    all_of_them = (dict(zip(axes, values, strict=True)) for values in product(*axes.values())) if axes else ()
    dropped = Entries([(entry, True) for entry in excluded])
    return [one for one in all_of_them if not dropped.of(one)]


class Entries(Generic[T]):
    """What is said of combinations that have certain values, found without a look at each entry."""

    def __init__(self, entries: Iterable[tuple[Mapping[str, Any], T]]) -> None:
        self._found: dict[tuple[str, ...], dict[tuple[Any, ...], list[T]]] = {}
        for values, said in entries:
            names = tuple(sorted(values))
            self._found.setdefault(names, {}).setdefault(tuple(values[name] for name in names), []).append(said)

    def of(self, combination: Mapping[str, Any]) -> list[T]:
        """What is said of a combination that has all values of the entry.

        >>> Entries([({"a": 1}, "x"), ({"a": 1, "b": 2}, "y"), ({"c": 1}, "z")]).of({"a": 1, "b": 2})
        ['x', 'y']
        """
        said: list[T] = []
        for names, by_values in self._found.items():
            said += by_values.get(tuple(combination.get(name) for name in names), ())
        return said
