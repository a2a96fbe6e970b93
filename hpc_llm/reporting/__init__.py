"""Runs to a comparison: one HTML page that needs no network, CSV, Markdown, LaTeX, PNG and SVG.

report = make_report(collect(["logs/"]))
write_report(report, Path("out"))
"""

from __future__ import annotations

from hpc_llm.reporting.baseline import read_baseline
from hpc_llm.reporting.collect import ReportedRun, assumptions, collect
from hpc_llm.reporting.outcomes import explain
from hpc_llm.reporting.report import Report, make_report, regressions, summary
from hpc_llm.reporting.write import tell_what_is_missing, write_report

__all__ = [
    "Report",
    "ReportedRun",
    "assumptions",
    "collect",
    "explain",
    "make_report",
    "read_baseline",
    "regressions",
    "summary",
    "tell_what_is_missing",
    "write_report",
]
