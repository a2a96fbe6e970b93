"""The comparison as files: CSV in SI units, Markdown as people read it.

Names come from logs and may hold anything, so each format has its own escape, in `hpc_llm.text.shown`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.records.files import replacing, write_output
from hpc_llm.reporting.comparison import best, count, figure, text
from hpc_llm.reporting.metric import METRICS, PEAK_ALLOCATED, PEAK_DEVICE, PEAK_HOST, PEAK_RESERVED, Metric
from hpc_llm.reporting.sections import Section, identity_columns, shape
from hpc_llm.reporting.table import Cells, Table, number_of
from hpc_llm.text.shown import markdown_text, one_line, safe_text

_MAKER = re.compile(r"^(?:(?:NVIDIA|Tesla|AMD|Instinct|GeForce) )+")
_TEXTS = frozenset(
    "cluster gpu method precision configuration kind task model outcome outcome_reason cause run_ids regression search".split()
)
_COUNTS = (
    "nodes", "world_size", "micro_batch_size", "gradient_accumulation_steps", "sequence_length", "global_batch_size",
)  # fmt: skip
_IDENTITY = (
    "cluster", "gpu", "nodes", "world_size", "method", "configuration", "precision", "kind", "task", "model",
    "micro_batch_size", "gradient_accumulation_steps", "global_batch_size", "sequence_length", "outcome", "runs",
)  # fmt: skip
_DEVICE_MEMORY = (PEAK_ALLOCATED, PEAK_RESERVED, PEAK_DEVICE)
"""The first of which anything is known is in the tables to read; all are in the CSV and behind each row of the page."""


def write_csv(table: Table, path: Path) -> None:
    """The comparison in SI units and bytes; missing is empty."""
    figures = [name for m in METRICS for name in (m.name, m.interval) if name in table.columns]
    compared = [name for name in table.columns if name.startswith("baseline_") or name == "regression"]
    names = [*_IDENTITY, *figures, *compared, "outcome_reason", "cause", "run_ids", "smoke", "search"]
    with replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_csv_cell(name, row[name]) for name in names] for row in table)


def _csv_cell(name: str, value: Any) -> Any:
    if name in _TEXTS:
        return None if text(value) is None else safe_text(one_line(str(value)))
    if name not in _COUNTS:
        return value
    number = number_of(value)
    return None if number is None or abs(number) >= 1 << 53 else int(number)  # a damaged record may hold any number


def reading_metrics(table: Table) -> list[Metric]:
    """The metrics of the tables to read: those of which any row knows a value, and of the device's memory one kind."""
    known = [m for m in METRICS if m is not PEAK_HOST and table.known(m.name)]
    return [m for m in known if m not in _DEVICE_MEMORY or m is next(k for k in known if k in _DEVICE_MEMORY)]


def reading_table(section: Section, metrics: list[Metric]) -> Table:
    """The texts of one section's table, units in the headers, repeats as `mean ± half width`, two of them as `mean (low to high)`; `#` numbers the rows."""
    names = identity_columns(section)
    rows: dict[int, Cells] = {}
    for number, (index, row) in enumerate(section.rows.items(), 1):
        known = identity(row)
        cells = {"#": str(number)} | {name: known[name] for name in names} | {"Outcome": outcome(row)}
        figures = {
            m.header: m.text_with_interval(figure(row[m.name]), interval(row, m), row.get(m.ends)) for m in metrics
        }
        rows[index] = cells | figures
    columns = ["#", *names, "Outcome", *(m.header for m in metrics)]
    return Table(columns, rows)


def identity(row: Cells) -> dict[str, str]:
    """What says which row it is, by the names of the columns."""
    return {
        "Run": text(row["name"]) or "",
        "Model and shape": shape(row),
        "Method": method(row),
        "Cluster": text(row["cluster"]) or "",
        "GPUs": gpus(row),
    }


def interval(row: Cells, metric: Metric) -> float | None:
    """Half the width of the confidence interval, None where there is none."""
    return figure(row[metric.interval]) if metric.of_repeats == "mean" else None


def gpus(row: Cells) -> str:
    """`8 × V100-SXM2-32GB` without the maker's name, `8 ranks` where the GPU is unknown or there is none."""
    ranks, name = count(row["world_size"]), _MAKER.sub("", text(row["gpu"]) or "")
    if not name:
        return "" if ranks is None else f"{ranks} rank{'s' if ranks != 1 else ''}"
    return name if ranks is None else f"{ranks} × {name}"


def method(row: Cells) -> str:
    """The method's name with what sets this row apart from others of that name."""
    label = text(row["configuration"])
    return f"{text(row['method']) or ''} [{label}]" if label else text(row["method"]) or ""


def outcome(row: Cells) -> str:
    """The outcome, with the number of runs where it is not one."""
    runs = count(row["runs"]) or 1
    return f"{row['outcome']}, n={runs}" if runs > 1 else str(row["outcome"])


def write_markdown(
    sections: Sequence[Section], tables: Mapping[str, Table], lists: Mapping[str, list[str]], path: Path
) -> None:
    """One table a section, the best of each column in bold, blank where nothing is known; `tables`, `lists` by heading."""
    parts = ["# Comparison of runs\n"]
    for section in sections:
        metrics, marks = reading_metrics(section.rows), {} if section.is_mixed else best(section.rows)
        table = reading_table(section, metrics)
        table.columns.remove("#")
        for row in table:
            row.update({name: markdown_text(row[name]) for name in table.columns})
        for metric in metrics:
            for index in marks.get(metric.name, ()):
                table[index][metric.header] = f"**{table[index][metric.header]}**"
        written = _markdown(table, ["left"] * (len(table.columns) - len(metrics)) + ["right"] * len(metrics))
        parts.append(f"## {markdown_text(section.title)}\n\n{written}\n")
    for heading, table in tables.items():
        written = _markdown(Table(table.columns, [{n: markdown_text(row[n]) for n in table.columns} for row in table]))
        parts.append(f"## {markdown_text(heading)}\n\n{written}\n")
    for heading, lines in lists.items():
        if lines:
            parts.append(f"## {heading}\n\n" + "\n".join(f"- {markdown_text(line)}" for line in lines) + "\n")
    write_output(path, "\n".join(parts))


def _markdown(table: Table, align: Sequence[str] | None = None) -> str:
    from tabulate import tabulate

    cells = [[row[name] for name in table.columns] for row in table]
    return tabulate(cells, headers=table.columns, tablefmt="pipe", colalign=align, disable_numparse=True)
