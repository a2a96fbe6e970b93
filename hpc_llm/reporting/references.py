"""Measured figures beside the published ones that a study names for its runs.

A ratio is given where size and hardware are the reference's. Of other hardware only the order of the methods, and their
ratios among each other, are looked at, in words. Nothing here changes a measured figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpc_llm.planning.reference import Reference
from hpc_llm.planning.study import StudyRun
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import figure, text
from hpc_llm.reporting.files import gpus
from hpc_llm.reporting.metric import METRICS
from hpc_llm.reporting.statistics import Estimate, estimate
from hpc_llm.reporting.table import Cells, Table, number_of

COLUMNS = (
    "study", "run", "cluster", "hardware", "result", "runs", "measured", "measured_ci95", "reference", "unit", "ratio",
    "verdict", "reference_hardware", "source", "row",
)  # fmt: skip
_COUNT = re.compile(r"(\d{1,6})\s*[x×*]\s*(.+)")
_MAKERS = frozenset(("nvidia", "tesla", "amd", "instinct", "geforce", "gpu", "gpus"))
_LARGEST = frozenset(metric.name for metric in METRICS if metric.of_repeats == "max")
_ELSEWHERE = frozenset(("cluster",))
"""What may be changed without the size."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """One result of the repeats of one run, held against its reference."""

    place: StudyRun
    result: str
    reference: Reference
    row: Cells
    """Of the comparison; where all repeats are INVALID, of one of them."""
    index: int | None
    """The number of that row in the comparison; None where it has none."""
    measured: float | None
    half_width: float | None
    ends: tuple[float, float] | None
    """Both values where there are two repeats."""
    runs: int
    weights: str | None = None
    """What the runs began with, as their plans say it."""

    @property
    def target(self) -> float:
        """The reference in the unit of what is measured."""
        return self.reference.in_unit_of(self.result)

    @property
    def objection(self) -> str | None:
        """Why there is no ratio; None where there is one."""
        if self.measured is None:
            is_over = self.row["outcome"] == Outcome.COMPLETED.value
            return "this was not measured" if is_over else f"nothing measured: {self.row['outcome']}"
        if self.place.smoke:
            return "a smoke run, of another size: no ratio"
        if changed := [name for name in self.place.changed if name not in _ELSEWHERE]:
            return f"the command line changed {', '.join(changed)}: no ratio"
        return (
            self._of_hardware()
            or self._of_weights()
            or (None if self.target > 0 and self.measured > 0 else "no ratio of what is not above 0")
        )

    @property
    def ratio(self) -> float | None:
        """Measured over reference, where both are of the same."""
        return self.measured / self.target if self.measured is not None and self.objection is None else None

    @property
    def verdict(self) -> str:
        """What comes of it, in words."""
        ratio, tolerance = self.ratio, self.reference.tolerance
        if ratio is None:
            return self.objection or ""
        if tolerance is None:
            return "the reference states no tolerance"
        return f"{'within' if abs(ratio - 1) <= tolerance else 'beyond'} {100 * tolerance:g} %"

    def _of_hardware(self) -> str | None:
        """Why the hardware is not the reference's, or nobody can tell."""
        wanted, asked = _COUNT.fullmatch(self.reference.hardware), self.reference.hardware
        name, number = (wanted[2], int(wanted[1])) if wanted else (asked, None)
        here, ranks = _words(text(self.row["gpu"]) or ""), figure(self.row["world_size"])
        if not here:
            return "the run does not name its processor: order and ratios between methods only"
        if _words(name) != here:
            likely = set(_words(name)) <= set(here)
            also = f", and nothing says that this is {asked}" if likely else ""
            return f"on {gpus(self.row)}{also}: order and ratios between methods only"
        if number is None and self.place.changed:
            return "the reference does not say on how many GPUs: order and ratios between methods only"
        if number is not None and number != ranks:
            return f"on {gpus(self.row)}: order and ratios between methods only"
        return None

    def _of_weights(self) -> str | None:
        """Why the figure, which depends on the weights and their tokens, is not that of this run."""
        wanted = self.reference.weights
        if wanted is None or wanted == self.weights:
            return None
        return f"the run began with {self.weights or 'unknown'} weights, the reference with those of {wanted}: no ratio"

    @property
    def cells(self) -> Cells:
        """As a row of COLUMNS, in the unit of the result."""
        values = (
            self.place.study, self.place.name, self.row["cluster"], gpus(self.row), self.result, self.runs, self.measured,
            self.half_width, self.target, self.reference.unit, self.ratio, self.verdict, self.reference.hardware,
            self.reference.source, self.index,
        )  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


@dataclass(frozen=True, kw_only=True)
class References:
    """All that is held against references."""

    held: Sequence[Held] = field(default_factory=list)

    @property
    def table(self) -> Table:
        """One row each, in the columns COLUMNS."""
        return Table(COLUMNS, [one.cells for one in self.held])

    @property
    def orders(self) -> list[str]:
        """Whether methods stand in the order of their references, a sentence for each setting with two or more."""
        places: dict[Any, list[Held]] = {}
        for one in self.held:
            if (
                one.measured is not None
                and not one.place.smoke
                and set(one.place.changed) <= _ELSEWHERE
                and not one._of_weights()
            ):
                places.setdefault(_setting(one), []).append(one)
        groups = ({str(one.row["method"]): one for one in those} for those in places.values())
        return [_order(list(each.values())) for each in groups if len(each) > 1]


def references(runs: Sequence[ReportedRun], table: Table, compared: Table) -> References:
    """The figures of `compared`, whose members are numbers of `table` and `runs`, that have a reference."""
    rows = [(index, row, list(row["members"])) for index, row in compared.items()]
    invalid = [(None, row, [i]) for i, row in table.items() if row["outcome"] == Outcome.INVALID.value]
    return References(held=[one for each in (*rows, *invalid) for one in _held(runs, table, *each)])


def _held(
    runs: Sequence[ReportedRun], table: Table, index: int | None, row: Cells, members: Sequence[int]
) -> Iterator[Held]:
    places: dict[Any, StudyRun] = {}
    for place in (runs[i].study for i in members):
        if place is not None:  # repeats by seed are runs of different names and one reference
            key = (place.study, tuple(place.reference.items()), place.smoke, place.changed)
            places.setdefault(key, place)
    for place in places.values():
        for result, reference in place.reference.items():
            found = _measured([table[i].get(result) for i in members], result, row)
            yield Held(
                place=place,
                result=result,
                reference=reference,
                row=row,
                index=index,
                measured=found.mean,
                half_width=found.half_width,
                ends=found.ends,
                runs=len(members),
                weights=runs[members[0]].plan.get("weights"),
            )


def _measured(values: Sequence[Any], result: str, row: Cells) -> Estimate:
    """Of the completed runs, the largest of what is a peak."""
    known = [value for value in map(number_of, values) if value is not None]
    if row["outcome"] != Outcome.COMPLETED.value or not known:
        return Estimate(None, None, 0)
    return Estimate(max(known), None, len(known)) if result in _LARGEST else estimate(known)


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS)


def _setting(one: Held) -> Any:
    """What must be the same for methods to be compared, on both sides."""
    here = (text(one.row["cluster"]), text(one.row["gpu"]), one.row["world_size"])
    return (one.place.study, _besides(one), one.result, *here, one.reference.hardware)


def _besides(one: Held) -> tuple[str, ...]:
    """What of the run its study varies besides the method and what changes no size."""
    left_out = ("method", "cluster", "seed", "set.seed")
    return tuple(f"{name}={value}" for name, value in sorted(one.place.differs.items()) if name not in left_out)


def _order(group: list[Held]) -> str:
    """The order of the methods beside that of the references, and the ratios to the first one."""
    group.sort(key=lambda one: one.target, reverse=True)
    first = group[0]
    pairs = [(a, b) for i, a in enumerate(group) for b in group[i + 1 :] if a.target > b.target]
    ahead = [((a.measured or 0.0) - (b.measured or 0.0), _doubt(a) + _doubt(b)) for a, b in pairs]
    if any(by < -doubt for by, doubt in ahead):
        said = "differs from the reference's"
    elif any(by <= doubt for by, doubt in ahead):
        said = "cannot be told from these repeats; the reference's is"
    else:
        said = "is the reference's"
    measured = " > ".join(_method(one) for one in sorted(group, key=lambda one: -(one.measured or 0.0)))
    ratios = "; ".join(
        f"{_method(one)}/{_method(first)} {_share(one.measured, first.measured)} (reference {_share(one.target, first.target)})"
        for one in group[1:]
    )
    setting = f" ({', '.join(_besides(first))})" if _besides(first) else ""
    where = f"{first.result} of {first.place.study}{setting} on {text(first.row['cluster']) or 'an unknown cluster'}"
    of_reference = " > ".join(map(_method, group))
    return f"{where}, {gpus(first.row)}: the order {measured} {said} {of_reference}. {ratios}"


def _doubt(one: Held) -> float:
    return one.half_width or 0.0


def _method(one: Held) -> str:
    return text(one.row["method"]) or "unknown"


def _share(value: float | None, base: float | None) -> str:
    return f"{value / base:.3g}" if value is not None and base else "unknown"
