"""The tries of searches for the micro batch, as plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpc_llm.errors import counted
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import count, figure, text
from hpc_llm.reporting.figure import FRONTIER, TRIES, Figure, is_wide, panel_of, panels_of, runs_of
from hpc_llm.reporting.metric import TOKENS_PER_GPU
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.table import Cells
from hpc_llm.text.shown import one_line


def tries(report: Report) -> Figure | None:
    """Tokens/s/GPU of each micro batch that a search has tried; what did not fit is marked at zero."""
    records: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for index, row, run, name in _of_searches(report):
        size, fits = count(row["micro_batch_size"]) or 0, _fits(run)
        rate, outcome = figure(run.row.tokens_per_second_per_gpu), run.row.outcome or "not over"
        panel = f"{panel_of(row)} · {text(row['model'])} · sequence length {count(row['sequence_length'])}"
        point = {"x": size, "y": rate if fits and rate else 0, "fits": fits, "outcome": outcome}
        of_run = {"row": index, "panel": panel, "method": name, "run": one_line(run.row.run_id or "")}
        records.append(of_run | point)
        cells.append([panel, name, str(size), outcome, TOKENS_PER_GPU.text(rate)])
    if not any(r["fits"] for r in records):
        return None
    best = max(records, key=lambda r: r["y"])
    caption = (
        f"{counted(len(records), 'training')} of searches for the micro batch. Highest: {best['method']} with {best['x']}, "
        f"{TOKENS_PER_GPU.text(best['y'])} tokens/s/GPU. Crosses did not fit, or did not complete."
    )
    is_log = is_wide([r["x"] for r in records])
    return Figure(
        kind="tries", section=TRIES, title="Micro batches that were tried", caption=caption, records=records, is_log=is_log,
        x_title=f"Micro batch (sequences{', log scale' if is_log else ''})", y_title="Tokens/s/GPU", panels=panels_of(records),
        headers=["Where", "Method", "Micro batch", "Outcome", "Tokens/s/GPU"], cells=cells,
    )  # fmt: skip


def frontier(report: Report) -> Figure | None:
    """The largest micro batch at each sequence length, of searches over several."""
    largest: dict[tuple[str, str, int], tuple[int, int]] = {}
    for index, row, run, name in _of_searches(report):
        key = (f"{panel_of(row)} · {text(row['model'])}", name, count(row["sequence_length"]) or 0)
        if _fits(run):
            largest[key] = max(largest.get(key, (0, 0)), (count(row["micro_batch_size"]) or 0, index))
    if len({key[-1] for key in largest}) < 2:
        return None
    records: list[dict[str, Any]] = [
        {"row": index, "panel": where, "method": name, "run": name, "x": length, "y": size, "fits": True, "outcome": "COMPLETED"}
        for (where, name, length), (size, index) in sorted(largest.items())
    ]  # fmt: skip
    caption = "The largest micro batch that completed at each length that was searched; what lies above a line did not fit or was not tried."
    is_log = is_wide([r["x"] for r in records])
    return Figure(
        kind="tries", section=FRONTIER, title="Largest micro batch by sequence length", caption=caption, records=records,
        x_title=f"Sequence length (tokens{', log scale' if is_log else ''})", y_title="Micro batch (sequences)", is_log=is_log,
        headers=["Where", "Method", "Sequence length", "Largest micro batch"], panels=panels_of(records),
        cells=[[r["panel"], r["method"], str(r["x"]), str(r["y"])] for r in records],
    )  # fmt: skip


def _of_searches(report: Report) -> Iterator[tuple[int, Cells, ReportedRun, str]]:
    """The tries of searches, with index and row of the comparison; INVALID ones have none. The name is that of the method, with
    its run's where several searches had that method."""
    found = [
        (index, row, run)
        for section in report.sections
        for index, row, run in runs_of(report, section)
        if run.of_search is not None and count(row["micro_batch_size"]) and count(row["sequence_length"])
    ]
    several = {(run.row.method, run.of_search) for _, _, run in found}
    methods = [name for name, _ in several]
    for index, row, run in sorted(found, key=lambda one: one[0]):
        name = text(row["method"]) or "unknown"
        is_one = methods.count(run.row.method) == 1
        yield index, row, run, name if is_one else f"{name} ({one_line(Path(run.of_search or '').name)})"


def _fits(run: ReportedRun) -> bool:
    return run.row.outcome == Outcome.COMPLETED.value
