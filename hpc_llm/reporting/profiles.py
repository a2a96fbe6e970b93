"""What the steps of profiled runs were made of: shares for a plot, kernels and waits for tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths
from hpc_llm.reporting.table import Table
from hpc_llm.text.secrecy import redacted
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.reporting.report import Report

KINDS = ("compute", "optimizer", "communication", "copies", "idle")
"""In the order in which they are drawn."""
_MOST = 10
"""Kernels, and waits, of one run that a report lists."""
_LONGEST_NAME = 120
_SUM = 0.01
"""By so much the shares may miss the whole step: a file whose do more was not written by us."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One kernel, operator or wait of a step."""

    name: str
    kind: str
    time_s: float
    calls: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What profile.json says of a run."""

    step_time_s: float
    measured_step_time_s: float | None
    """Without the profiler."""
    shares: Mapping[str, float]
    """Of the step, by kind; they add up to 1."""
    kernels: Sequence[Part]
    waits: Sequence[Part]


def read_profile(paths: RunPaths) -> Profile | None:
    """The profile of a run; None where there is none, or none that can be."""
    record = read_json(paths.profile)
    if record is None or record.get("schema") != 1:
        return None
    shares = _shares(record.get("shares"))
    time = record.get("step_time_s")
    if shares is None or not _is_time(time) or not time:
        return None
    measured = record.get("measured_step_time_s")
    return Profile(
        step_time_s=time,
        measured_step_time_s=measured if _is_time(measured) and measured else None,
        shares=shares,
        kernels=list(_parts(record.get("kernels"), "name", "kind")),
        waits=list(_parts(record.get("waits"), "what", "inside")),
    )


def _shares(found: Any) -> dict[str, float] | None:
    """The shares by kind; None where one is missing, or they are not the whole step."""
    if not _is_map(found) or not all(_is_time(found.get(name)) for name in KINDS):
        return None
    shares = {name: float(found[name]) for name in KINDS}
    return shares if abs(sum(shares.values()) - 1) <= _SUM else None


def _parts(rows: Any, name: str, kind: str) -> Iterator[Part]:
    for row in rows[:_MOST] if isinstance(rows, list) else ():
        if _is_map(row) and all(map(_is_time, (row.get("time_s"), row.get("calls"), row.get("share")))):
            texts = [one_line(redacted(str(row.get(key) or "")))[:_LONGEST_NAME] for key in (name, kind)]
            yield Part(name=texts[0], kind=texts[1], time_s=row["time_s"], calls=row["calls"], share=row["share"])


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


_OPENED_BY = {".nsys-rep": "nsys-ui", ".ncu-rep": "ncu-ui", ".pftrace": "Perfetto", ".gz": "Perfetto"}
_COLUMNS = ["Run", "Files", "Opened by"]


def profile_tables(report: Report) -> dict[str, Table]:
    """The files of profiled runs, and of each kernels by time and what the host waits for, by title."""
    found: dict[str, Table] = {"Files of profiles": Table(_COLUMNS, list(_files(report)))}
    for run in report.runs:
        if run.profile is None:
            continue
        name = one_line(run.row.run_id or run.source)
        found[f"Kernels by time: {name}"] = _table("Kernel", "Kind", run.profile.kernels)
        found[f"What the host waits for: {name}"] = _table("Wait", "Inside", run.profile.waits)
    return {title: table for title, table in found.items() if len(table)}


def _files(report: Report) -> Iterator[dict[str, str]]:
    for run in report.runs:
        names = (run.row.profile or "").split()
        asked = (run.plan or {}).get("profile")
        if not names and asked in (None, "torch"):
            continue
        by = dict.fromkeys(said for name in names for end, said in _OPENED_BY.items() if name.endswith(end))
        why = next((said for said in run.notices if said.startswith("the profiler ")), run.row.outcome_reason)
        files = ", ".join(names) or f"none: {why or f'{asked} left nothing, log.err may say why'}"
        yield dict(zip(_COLUMNS, (one_line(run.row.run_id or run.source), one_line(files), ", ".join(by)), strict=True))


def _table(name: str, kind: str, parts: Sequence[Part]) -> Table:
    columns = [name, kind, "ms a step", "% of the step", "Calls a step"]
    cells = [(p.name, p.kind, f"{1e3 * p.time_s:.3f}", f"{100 * p.share:.1f}", f"{p.calls:.4g}") for p in parts]
    return Table(columns, [dict(zip(columns, row, strict=True)) for row in cells])
