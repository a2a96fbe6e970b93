"""One plot as data, and what all plots have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import text
from hpc_llm.reporting.files import method
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.sections import Section
from hpc_llm.reporting.table import Cells

_WIDE = 20.0
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""
UNKNOWN_CLUSTER = "unknown cluster"
STRONG = "same-global-batch"
"""In place of a section's id: series at one global batch lie across the sections."""
GPUS = "gpus-over-time"
"""In place of a section's id: how busy GPUs are asks for no counterpart."""
PROFILES = "profiles"
"""In place of a section's id: so does what a step is made of."""
TRIES, FRONTIER = "tries-of-searches", "frontier-of-searches"
"""In place of a section's id: the tries of a search are of many shapes."""
RUN_FIGURES = (
    "inference_latency", "inference_throughput", "inference_memory", "finetune_time", "finetune_time_per_epoch", "finetune_memory",
)  # fmt: skip
"""In place of a section's id, and the names of their files: bars of runs of any shape."""
ALL_MODELS = (*RUN_FIGURES, STRONG, GPUS, PROFILES, TRIES, FRONTIER)
CURVES = frozenset(("loss", "utilization"))
"""Kinds whose records are the points of lines, one line a run."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One plot, in a panel for each cluster; `kind` is `rates`, `memory`, `scaling`, `loss`, `utilization`, `profile`,
    `tries` or `bars`."""

    kind: str
    section: str
    """Id of the section it belongs to."""
    title: str
    caption: str
    """What it shows, in words, for those who do not see it."""
    x_title: str
    y_title: str
    records: list[dict[str, Any]]
    """Points with `panel`, `method`, `row` (index in the comparison), and x, y, low, high as far as the kind has them."""
    headers: list[str]
    cells: list[list[str]]
    """The table behind it."""
    is_log: bool = False
    """The axis of the rates, or of the steps, is logarithmic."""
    panels: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.section}"


def runs_of(report: Report, section: Section) -> Iterator[tuple[int, Cells, ReportedRun]]:
    """Index and row of the comparison with each run that it stands for."""
    for index, row in section.rows.items():
        for member in row["members"]:
            yield index, row, report.runs[member]


def point_of(index: int, row: Cells) -> dict[str, Any]:
    return {"row": index, "panel": panel_of(row), "method": method(row)}


def panel_of(row: Cells) -> str:
    return text(row["cluster"]) or text(row["gpu"]) or UNKNOWN_CLUSTER


def panels_of(records: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(r["panel"]) for r in records))


def is_wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _WIDE
