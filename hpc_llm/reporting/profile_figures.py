"""What the steps of profiled runs are made of, as a plot."""

from __future__ import annotations

from typing import Any

from hpc_llm.errors import counted
from hpc_llm.reporting.figure import PROFILES, Figure, panel_of, panels_of, point_of
from hpc_llm.reporting.files import method
from hpc_llm.reporting.profiles import KINDS
from hpc_llm.reporting.report import Report
from hpc_llm.text.shown import one_line


def profiles(report: Report) -> Figure | None:
    """What a step of each profiled run was made of; INVALID runs have no row and so no bar."""
    records: list[dict[str, Any]] = []
    cells = []
    for index, row in report.compared.items():
        for run in (report.runs[member] for member in row["members"]):
            if run.profile is None:
                continue
            name, shares = one_line(run.row.run_id or ""), run.profile.shares
            bar = point_of(index, row) | {"name": name}
            records += [bar | {"kind": kind, "order": n, "x": 100 * shares[kind]} for n, kind in enumerate(KINDS)]
            times = (run.profile.measured_step_time_s, run.profile.step_time_s)
            shown = ["" if time is None else f"{1e3 * time:.4g}" for time in times]
            cells.append([panel_of(row), method(row), name, *shown, *(f"{100 * shares[kind]:.1f}" for kind in KINDS)])
    if not records:
        return None
    caption = (
        f"{counted(len(cells), 'run')}, three steps each behind the measured ones, rank 0. Each moment counts once, for the first of these "
        "that is at work then, so communication is what computing does not hide. A profiler slows down what it sees."
    )
    return Figure(
        kind="profile", section=PROFILES, title="What a step is made of", caption=caption, records=records, y_title="",
        x_title="Share of the step (%)", cells=cells, panels=panels_of(records),
        headers=["Cluster", "Method", "Run", "Step (ms)", "Profiled step (ms)", *(f"{k.capitalize()} (%)" for k in KINDS)],
    )  # fmt: skip
