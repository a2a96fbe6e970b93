"""The comparison as files: CSV in SI units, Markdown as people read it.

Names come from logs and may hold anything, so each format has its own escape, in `hpc_llm.text.shown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_llm.report.comparison import best, count, figure, text
from hpc_llm.report.metric import METRICS, PEAK_ALLOCATED, PEAK_DEVICE, PEAK_HOST, PEAK_RESERVED, Metric
from hpc_llm.report.sections import Section, identity_columns, shape
from hpc_llm.text.shown import markdown_text, one_line, safe_text

_MAKER = re.compile(r"^(?:(?:NVIDIA|Tesla|AMD|Instinct|GeForce) )+")
_TEXTS = frozenset(
    "cluster gpu method precision configuration kind task model outcome outcome_reason cause run_ids regression".split()
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


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """The comparison in SI units and bytes; missing is empty."""
    figures = [name for m in METRICS for name in (m.name, m.interval) if name in table.columns]
    compared = [name for name in table.columns if name.startswith("baseline_") or name == "regression"]
    names = [*_IDENTITY, *figures, *compared, "outcome_reason", "cause", "run_ids"]
    shown = table[names].copy()
    for name in _TEXTS & set(shown.columns):
        shown[name] = [None if text(v) is None else safe_text(one_line(str(v))) for v in shown[name]]
    for name in _COUNTS:
        counts = pd.to_numeric(shown[name], errors="coerce")
        shown[name] = counts.where(counts.abs() < 1 << 53).astype("Int64")  # a damaged record may hold any number
    shown.to_csv(path, index=False, lineterminator="\n")


def reading_metrics(table: pd.DataFrame) -> list[Metric]:
    """The metrics of the tables to read: those of which any row knows a value, and of the device's memory one kind."""
    known = [m for m in METRICS if m is not PEAK_HOST and table[m.name].notna().any()]
    return [m for m in known if m not in _DEVICE_MEMORY or m is next(k for k in known if k in _DEVICE_MEMORY)]


def reading_table(section: Section, metrics: list[Metric]) -> pd.DataFrame:
    """The texts of one section's table, units in the headers, repeats as `mean ± half width`; `#` numbers the rows."""
    names = identity_columns(section)
    rows: list[dict[str, Any]] = []
    for number, (_, row) in enumerate(section.rows.iterrows(), 1):
        known = identity(row)
        cells = {"#": str(number)} | {name: known[name] for name in names} | {"Outcome": outcome(row)}
        rows.append(cells | {m.header: m.text_with_interval(figure(row[m.name]), interval(row, m)) for m in metrics})
    columns = ["#", *names, "Outcome", *(m.header for m in metrics)]
    return pd.DataFrame(rows, columns=columns, index=section.rows.index)


def identity(row: pd.Series) -> dict[str, str]:
    """What says which row it is, by the names of the columns."""
    return {
        "Run": text(row["name"]) or "",
        "Model and shape": shape(row),
        "Method": method(row),
        "Cluster": text(row["cluster"]) or "",
        "GPUs": gpus(row),
    }


def interval(row: pd.Series, metric: Metric) -> float | None:
    """Half the width of the confidence interval, None where there is none."""
    return figure(row[metric.interval]) if metric.of_repeats == "mean" else None


def gpus(row: pd.Series) -> str:
    """`8 × V100-SXM2-32GB` without the maker's name, `8 ranks` where the GPU is unknown or there is none."""
    ranks, name = count(row["world_size"]), _MAKER.sub("", text(row["gpu"]) or "")
    if not name:
        return "" if ranks is None else f"{ranks} rank{'s' if ranks != 1 else ''}"
    return name if ranks is None else f"{ranks} × {name}"


def method(row: pd.Series) -> str:
    """The method's name with what sets this row apart from others of that name."""
    label = text(row["configuration"])
    return f"{text(row['method']) or ''} [{label}]" if label else text(row["method"]) or ""


def outcome(row: pd.Series) -> str:
    """The outcome, with the number of runs where it is not one."""
    runs = count(row["runs"]) or 1
    return f"{row['outcome']}, n={runs}" if runs > 1 else str(row["outcome"])


def write_markdown(
    sections: Sequence[Section], tables: Mapping[str, pd.DataFrame], lists: Mapping[str, list[str]], path: Path
) -> None:
    """One table a section, the best of each column in bold, blank where nothing is known; `tables`, `lists` by heading."""
    parts = ["# Comparison of runs\n"]
    for section in sections:
        metrics, marks = reading_metrics(section.rows), {} if section.is_mixed else best(section.rows)
        table = reading_table(section, metrics).drop(columns="#")
        for name in table.columns:
            table[name] = [markdown_text(cell) for cell in table[name]]
        for metric in metrics:
            for index in marks.get(metric.name, ()):
                table.loc[index, metric.header] = f"**{table.loc[index, metric.header]}**"
        align = ["left"] * (len(table.columns) - len(metrics)) + ["right"] * len(metrics)
        written = table.to_markdown(index=False, colalign=align, disable_numparse=True)
        parts.append(f"## {markdown_text(section.title)}\n\n{written}\n")
    for heading, table in tables.items():
        written = table.map(markdown_text).to_markdown(index=False, disable_numparse=True)
        parts.append(f"## {markdown_text(heading)}\n\n{written}\n")
    for heading, lines in lists.items():
        if lines:
            parts.append(f"## {heading}\n\n" + "\n".join(f"- {markdown_text(line)}" for line in lines) + "\n")
    path.write_text("\n".join(parts), encoding="utf-8")
