"""What the plots show, once for the page and for the files: records, a sentence, and the table behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hpc_llm.errors import counted
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import count, figure, text
from hpc_llm.reporting.figure import GPUS, STRONG, Figure, is_wide, panel_of, panels_of, point_of, runs_of
from hpc_llm.reporting.files import gpus, method
from hpc_llm.reporting.labels import apart, with_short_names
from hpc_llm.reporting.metric import PEAK_ALLOCATED, TOKENS_PER_GPU
from hpc_llm.reporting.profile_figures import profiles
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.run_figures import run_figures
from hpc_llm.reporting.search_figures import frontier, tries
from hpc_llm.reporting.sections import Section
from hpc_llm.reporting.table import Cells, Table
from hpc_llm.reporting.telemetry import Curve
from hpc_llm.text.shown import one_line

_LOSS_STOPS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MAX_CURVE_POINTS = 6000
_MAX_LOSS_POINTS = 20_000
"""Of all runs together, for the page's size and for how soon it answers."""


def figures(report: Report) -> list[Figure]:
    """The plots of all sections in which there is something to compare."""
    found: list[Figure | None] = []
    for section in report.sections:
        if not section.is_mixed:
            found += [rates(section), memory(section), weak_scaling(report, section)]
        found.append(loss(report, section))
    over_all = (strong_scaling(report), utilization(report), profiles(report), tries(report), frontier(report))
    drawn = [each for each in (*found, *run_figures(report), *over_all) if each is not None]
    methods = apart(method_names(drawn))
    return [replace(each, records=with_short_names(each.records, methods)) for each in drawn]


def method_names(drawn: Sequence[Figure]) -> list[str]:
    """The methods in the plots, in the order in which they get their colours and shapes."""
    return sorted({str(record["method"]) for figure in drawn for record in figure.records})


def rates(section: Section) -> Figure | None:
    """Tokens/s/GPU with its confidence interval."""
    rows = _completed(section.rows, TOKENS_PER_GPU.name)
    records, cells = [], []
    for index, row in rows.items():
        value, half = cast(float, figure(row[TOKENS_PER_GPU.name])), figure(row[TOKENS_PER_GPU.interval])
        ends = row.get(TOKENS_PER_GPU.ends)
        low, high = ends or ((None, None) if half is None else (max(value - half, 0.0), value + half))
        ranks = count(row["world_size"])
        name = f"{method(row)} ×{ranks}" if ranks else method(row)
        runs = count(row["runs"])
        records.append(point_of(index, row) | {"x": value, "low": low, "high": high, "name": name, "runs": runs})
        shown = TOKENS_PER_GPU.text_with_interval(value, half, ends)
        cells.append([panel_of(row), gpus(row), method(row), shown, str(runs)])
    if len(records) < 2:
        return None
    ordered = sorted(records, key=lambda r: r["x"])
    slowest, fastest = ordered[0], ordered[-1]
    caption = (
        f"Highest: {fastest['name']} on {fastest['panel']}, {TOKENS_PER_GPU.text(fastest['x'])} tokens/s/GPU. "
        f"Lowest: {slowest['name']} on {slowest['panel']}, {TOKENS_PER_GPU.text(slowest['x'])}. "
        "×N is the number of ranks; lines are 95 % confidence intervals of repeated runs, of two both values."
    )
    is_log = is_wide([r["x"] for r in records])
    return Figure(
        kind="rates", section=section.id, title="Throughput per GPU", caption=caption, records=records, y_title="",
        x_title=f"Tokens/s/GPU{' (log scale)' if is_log else ''}", is_log=is_log, panels=panels_of(records),
        headers=["Cluster", "GPUs", "Method", "Tokens/s/GPU", "Runs"], cells=cells,
    )  # fmt: skip


def memory(section: Section) -> Figure | None:
    """Peak memory against tokens/s/GPU."""
    rows = _completed(_completed(section.rows, TOKENS_PER_GPU.name), PEAK_ALLOCATED.name)
    records, cells = [], []
    for index, row in rows.items():
        peak, rate = figure(row[PEAK_ALLOCATED.name]), figure(row[TOKENS_PER_GPU.name])
        records.append(point_of(index, row) | {"x": PEAK_ALLOCATED.shown(peak), "y": rate, "gpus": gpus(row)})
        cells.append([panel_of(row), gpus(row), method(row), PEAK_ALLOCATED.text(peak), TOKENS_PER_GPU.text(rate)])
    if len(records) < 2:
        return None
    is_log = is_wide([r["y"] for r in records])
    frugal = min(records, key=lambda r: r["x"])
    caption = (
        f"Least memory: {frugal['method']} on {frugal['panel']}, {frugal['x']:.1f} GiB at "
        f"{TOKENS_PER_GPU.text(frugal['y'])} tokens/s/GPU. Up and to the left is better. Runs out of memory are in the table only."
    )
    return Figure(
        kind="memory", section=section.id, title="Memory against throughput", caption=caption, records=records,
        x_title="Peak allocated (GiB)", y_title=f"Tokens/s/GPU{' (log scale)' if is_log else ''}", is_log=is_log,
        headers=["Cluster", "GPUs", "Method", PEAK_ALLOCATED.header, "Tokens/s/GPU"], cells=cells, panels=panels_of(records),
    )  # fmt: skip


def weak_scaling(report: Report, section: Section) -> Figure | None:
    """Speed-up over the number of GPUs while each GPU's work stays the same."""
    series = [row for row in report.scaling if row["row"] in section.rows.rows and row["kind"] == "weak"]
    return _scaling(series, section.id, "Speed-up over GPUs", "at the same batch per GPU", list(map(panel_of, series)))


def strong_scaling(report: Report) -> Figure | None:
    """Speed-up over the number of GPUs while the work of all together stays the same; over all sections."""
    series = [row for row in report.scaling if row["kind"] == "strong"]
    panels = [f"{panel_of(r)} · {text(r['model'])} · global batch {r['batch']}" for r in series]
    return _scaling(series, STRONG, "Speed-up over GPUs at the same global batch", "at the same global batch", panels)


def scaling_tables(report: Report) -> dict[str, Table]:
    """Speed-up and efficiency of all series as texts, by title."""
    weak = ((f"Speed-up over GPUs: {section.title}", weak_scaling(report, section)) for section in report.sections)
    drawn = [*weak, ("Speed-up over GPUs at the same global batch", strong_scaling(report))]
    return {
        title: Table(one.headers, [dict(zip(one.headers, cells, strict=True)) for cells in one.cells])
        for title, one in drawn
        if one is not None
    }


def _scaling(series: Sequence[Cells], section: str, title: str, fixed: str, panels: Sequence[str]) -> Figure | None:
    records, cells = [], []
    for panel, row in zip(panels, series, strict=True):
        ranks, fewest = int(row["world_size"]), int(row["base_world_size"])
        speed_up, efficiency = float(row["speed_up"]), float(row["efficiency"])
        point = {"x": ranks, "y": speed_up, "efficiency": efficiency, "ideal": ranks / fewest}
        records.append(point_of(row["row"], row) | {"panel": panel} | point)
        cells.append([panel, method(row), str(ranks), str(fewest), f"{speed_up:.2f}", f"{100 * efficiency:.1f}"])
    if not records:
        return None
    worst = min(records, key=lambda r: r["efficiency"])
    caption = (
        f"Throughput over that of the fewest GPUs measured of the same series, {fixed}; the dashed line is proportional. "
        f"Lowest efficiency: {worst['method']} on {worst['panel']}, {100 * worst['efficiency']:.0f} % at {worst['x']} GPUs."
    )
    return Figure(
        kind="scaling", section=section, title=title, caption=caption, records=records, x_title="GPUs (log scale)",
        y_title="Speed-up (log scale)", cells=cells, panels=panels_of(records),
        headers=["Cluster", "Method", "GPUs", "Compared with (GPUs)", "Speed-up", "Efficiency (%)"],
    )  # fmt: skip


def loss(report: Report, section: Section) -> Figure | None:
    """The loss of each run over its steps; INVALID runs have no row and so no curve.

    In a mixed section each run has a look of its own, as a method has elsewhere.
    """
    every = -(-sum(len(run.steps) for run in report.runs) // _MAX_LOSS_POINTS)
    records: list[dict[str, Any]] = []
    cells, last, num_thinned = [], [], 0
    for index, row, run in runs_of(report, section):
        points = _losses(run)
        if len(points) < 2:
            continue
        name, drawn = one_line(run.row.run_id or run.source), sparse(points, every)
        point = point_of(index, row) | {"run": name} | ({"method": name} if section.is_mixed else {})
        records += [point | {"x": x, "y": y} for x, y in drawn]
        cells.append([panel_of(row), method(row), name, *_stops(points)])
        last.append(points[-1][0])
        num_thinned += run.num_steps > len(run.steps) or len(points) > len(drawn)
    if not records:
        return None
    is_log = section.is_mixed and is_wide(last)
    if is_log:
        records = [r for r in records if r["x"] > 0]
    share = ["first", "at 25 %", "at 50 %", "at 75 %", "last"]
    left_out = f" Of {counted(num_thinned, 'run')} not every step is drawn." if num_thinned else ""
    caption = f"{counted(len(cells), 'run')}, one line each, of which {_last_losses(cells)}.{left_out}"
    return Figure(
        kind="loss", section=section.id, title="Loss", caption=caption, records=records, y_title="Loss",
        x_title=f"Step{' (log scale)' if is_log else ''}", is_log=is_log,
        headers=["Cluster", "Method", "Run", *(f"Loss {s}" for s in share)], cells=cells, panels=panels_of(records),
    )  # fmt: skip


def utilization(report: Report) -> Figure | None:
    """How busy the GPUs of each run were over its time; INVALID runs have no row and so no curve."""
    curves = [
        (index, row, report.runs[member])
        for index, row in report.compared.items()
        for member in row["members"]
        if len(report.runs[member].utilization) > 1
    ]
    if not curves:
        return None
    every = -(-sum(len(run.utilization) for _, _, run in curves) // _MAX_CURVE_POINTS)
    unit, unit_s = _time_unit(max(run.utilization[-1][0] for _, _, run in curves))
    records: list[dict[str, Any]] = []
    cells, means = [], []
    for index, row, run in curves:
        name, curve = one_line(run.row.run_id or ""), thinned(run.utilization, every)
        records += [point_of(index, row) | {"x": x / unit_s, "y": 100 * y, "run": name} for x, y in curve]
        values = [100 * value for _, value in run.utilization]
        means.append(sum(values) / len(values))
        shown = [f"{value:.0f}" for value in (means[-1], min(values), max(values))]
        cells.append([panel_of(row), method(row), name, *shown, f"{run.utilization[-1][0]:,.0f}"])
    busiest, idlest = (cells[means.index(pick(means))] for pick in (max, min))
    caption = (
        f"{counted(len(cells), 'run')}, one line each: the share of time in which a kernel ran, mean of all GPUs of the run. "
        f"Highest mean: {busiest[3]} % ({busiest[1]} on {busiest[0]}). "
        f"Lowest mean: {idlest[3]} % ({idlest[1]} on {idlest[0]})."
    )
    return Figure(
        kind="utilization", section=GPUS, title="GPU utilisation over time", caption=caption, records=records,
        x_title=f"Time since the first sample ({unit})", y_title="GPU utilisation (%)", cells=cells, panels=panels_of(records),
        headers=["Cluster", "Method", "Run", "Mean (%)", "Lowest (%)", "Highest (%)", "Sampled for (s)"],
    )  # fmt: skip


def thinned(curve: Curve, every: int) -> Curve:
    """The means of `every` points in a row, at the time of the first of them.

    >>> thinned([(0.0, 1.0), (1.0, 0.0), (2.0, 0.5)], 2)
    [(0.0, 0.5), (2.0, 0.5)]
    """
    parts = [curve[i : i + every] for i in range(0, len(curve), every)]
    return [(part[0][0], sum(value for _, value in part) / len(part)) for part in parts]


def _time_unit(longest_s: float) -> tuple[str, float]:
    """Name and seconds of the unit in which an axis of that length is read best."""
    if longest_s <= 300:
        return "s", 1
    return ("min", 60) if longest_s <= 5 * 3600 else ("h", 3600)


def _last_losses(cells: Sequence[Sequence[str]]) -> str:
    last = sorted(float(c[-1].replace(",", "")) for c in cells)
    if len(last) == 1:
        return f"the last loss is {last[0]:.3f}"
    return f"the last losses lie between {last[0]:.3f} and {last[-1]:.3f}"


def _losses(run: ReportedRun) -> list[tuple[int, float]]:
    """Steps and losses, without the steps that have none."""
    losses = ((step.step, figure(step.loss)) for step in run.steps)
    return [(step, value) for step, value in losses if step is not None and value is not None]


def sparse(points: Sequence[tuple[int, float]], every: int) -> list[tuple[int, float]]:
    """Each `every`-th of the points, and the last.

    >>> sparse([(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0)], 2)
    [(1, 5.0), (3, 3.0), (4, 2.0)]
    """
    kept = list(points[:: max(every, 1)])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _stops(points: Sequence[tuple[int, float]]) -> list[str]:
    return [f"{points[round(share * (len(points) - 1))][1]:.4g}" for share in _LOSS_STOPS]


def _completed(rows: Table, name: str) -> Table:
    return rows.where(lambda row: row["outcome"] == Outcome.COMPLETED.value and row[name] is not None)
