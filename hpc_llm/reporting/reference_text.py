"""Measured beside published figures, as texts for page and Markdown, and as a CSV file in the units of the results."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from hpc_llm.planning.reference import units_of
from hpc_llm.records.files import replacing
from hpc_llm.reporting.comparison import text
from hpc_llm.reporting.references import COLUMNS, Held, References
from hpc_llm.reporting.table import Cells, Table
from hpc_llm.text.shown import one_line, safe_text

HEADERS = ("Study", "Run", "Cluster", "GPUs", "Result", "Measured", "n", "Published", "Ratio", "Verdict", "Source")
_DIGITS = 4
_FILE_COLUMNS = tuple(name for name in COLUMNS if name != "row")


def reference_rows(references: References) -> list[Cells]:
    """The cells below HEADERS, measured figures in the unit of the published ones."""
    return [_row(one) for one in references.held]


def reference_tables(references: References) -> dict[str, Table]:
    """The same as a table under its heading; nothing where there are none."""
    rows = reference_rows(references)
    return {"Measured and published": Table(HEADERS, rows)} if rows else {}


def _row(one: Held) -> Cells:
    cells, unit = one.cells, one.reference.unit
    factor = units_of(one.result)[unit]
    spread = "" if one.half_width is None else f" ± {_number(one.half_width / factor)}"
    if one.ends is not None:
        spread = f" ({' to '.join(_number(end / factor) for end in one.ends)})"
    measured = "" if one.measured is None else f"{_number(one.measured / factor)}{spread} {unit}"
    published = f"{_number(one.reference.value)} {unit}, {one.reference.hardware}"
    ratio = "" if one.ratio is None else f"{one.ratio:.3f}"
    values = (
        one.place.study, one.place.name, text(cells["cluster"]) or "", cells["hardware"], one.result, measured,
        str(one.runs), published, ratio, one.verdict, one.reference.source,
    )  # fmt: skip
    return {name: one_line(value) for name, value in zip(HEADERS, values, strict=True)}


def _number(value: float) -> str:
    return f"{value:,.{_DIGITS}g}" if abs(value) < 10**_DIGITS else f"{value:,.0f}"


def write_reference_csv(references: References, path: Path) -> None:
    """One row each; measured and reference in the unit of the result's column, `unit` is the reference's own."""
    with replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_FILE_COLUMNS)
        writer.writerows([_cell(one.cells[name]) for name in _FILE_COLUMNS] for one in references.held)


def _cell(value: Any) -> Any:
    return safe_text(one_line(value)) if isinstance(value, str) else value
