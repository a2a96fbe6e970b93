"""Latency, throughput and memory of inference, time and memory of fine-tuning: one bar a run, whatever its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpc_llm.errors import counted
from hpc_llm.immutable import dataclass
from hpc_llm.parsing.rows import INFER
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.comparison import figure, text
from hpc_llm.reporting.figure import RUN_FIGURES, Figure, panel_of, panels_of
from hpc_llm.reporting.files import gpus, method
from hpc_llm.reporting.metric import GIB
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.table import Cells
from hpc_llm.text.shown import one_line


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What one plot shows of each run."""

    section: str
    column: str
    """Of `parse`."""
    title: str
    axis: str
    unit: float = 1.0
    of_inference: bool


_FINETUNE = "finetune"
_ALL = tuple(
    _Wanted(section=section, column=column, title=title, axis=axis, unit=unit, of_inference=section.startswith("infer"))
    for section, (column, title, axis, unit) in zip(
        RUN_FIGURES,
        (
            ("latency_s_mean", "Latency of inference", "Mean latency of a query (s)", 1.0),
            ("tokens_per_second", "Throughput of inference", "Tokens/s, prompts and generated", 1.0),
            ("peak_allocated_bytes", "Memory of inference", "Peak allocated (GiB)", GIB),
            ("elapsed_s", "Time of fine-tuning, its start included", "Time of the run (s)", 1.0),
            ("epoch_time_s", "Time of an epoch of fine-tuning", "Steps of an epoch (s)", 1.0),
            ("peak_allocated_bytes", "Memory of fine-tuning", "Peak allocated (GiB)", GIB),
        ),
        strict=True,
    )
)


def run_figures(report: Report) -> list[Figure]:
    """A plot of each of these of which two runs or more say something."""
    made = (_figure(report, wanted) for wanted in _ALL)
    return [one for one in made if one is not None]


def _figure(report: Report, wanted: _Wanted) -> Figure | None:
    records: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for index, row, value in _rows(report, wanted):
        panel, name = f"{panel_of(row)} · {text(row['model']) or 'model unknown'}", _name(report, row)
        records.append({"row": index, "panel": panel, "method": method(row), "name": name, "x": value})
        cells.append([panel, gpus(row), name, method(row), f"{value:,.4g}", str(row["runs"])])
    if len(records) < 2:
        return None
    least, most = (pick(records, key=lambda r: r["x"]) for pick in (min, max))
    caption = (
        f"{counted(len(records), 'bar')}, each a run or the mean of its repeats. Lowest: {least['name']} on {least['panel']}, {least['x']:,.4g}. "
        f"Highest: {most['name']} on {most['panel']}, {most['x']:,.4g}. Shapes may differ: their tables are above."
    )
    return Figure(
        kind="bars", section=wanted.section, title=wanted.title, caption=caption, records=records, x_title=wanted.axis, y_title="",
        headers=["Where", "GPUs", "Run", "Method", wanted.axis, "Runs"], cells=cells, panels=panels_of(records),
    )  # fmt: skip


def _rows(report: Report, wanted: _Wanted) -> Iterator[tuple[int, Cells, float]]:
    """Index and row of the comparison with its value in the plot's unit; runs that completed."""
    for index, row in report.compared.items():
        is_infer = row["kind"] == INFER
        is_one = is_infer if wanted.of_inference else not is_infer and row["task"] == _FINETUNE
        if not is_one or row["outcome"] != Outcome.COMPLETED.value:
            continue
        found = [figure(getattr(report.runs[member].row, wanted.column)) for member in row["members"]]
        values = [value for value in found if value is not None]
        if values:
            yield index, row, sum(values) / len(values) / wanted.unit


def _name(report: Report, row: Cells) -> str:
    """As its study calls it, else its method."""
    names = {report.runs[member].row.study_run for member in row["members"]}
    [name] = names if len(names) == 1 else [None]
    return one_line(name or method(row))
