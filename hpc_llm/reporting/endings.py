"""The runs that did not complete, and what is known of why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpc_llm.diagnosis.environment import FIRST
from hpc_llm.parsing import UNKNOWN_FORMAT
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import NOT_OVER, text
from hpc_llm.reporting.outcomes import with_doubt
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.table import Table

_NO_CAUSE = frozenset(("unknown", "none"))


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one run ended other than by completing."""

    run: int
    """Its position in the report's runs."""
    name: str
    what: tuple[str, ...]
    """Its method, cluster and model, as far as they are known."""
    outcome: str
    reason: str
    cause: str | None
    """What the diagnosis calls it; None where nothing was recognised."""
    remedy: str | None
    """The first thing to do, and what it takes."""
    is_expected: bool = False
    """Whether its study expects just that."""

    @property
    def line(self) -> str:
        """All of it in one line."""
        cause = f"{self.cause}: " if self.cause else ""
        remedy = f". To do: {self.remedy}" if self.remedy else ""
        expected = ", as expected" if self.is_expected else ""
        return f"{self.outcome}{expected}: {self.name}: {cause}{self.reason.rstrip('.')}{remedy}"


def endings(report: Report) -> list[Ending]:
    """Each run that ended without completing, INVALID ones included, in the order of the runs."""
    found = []
    for index, row in report.table.items():
        if row["outcome"] in (Outcome.COMPLETED.value, NOT_OVER) or row["format"] == UNKNOWN_FORMAT:
            continue
        run = report.runs[index]
        reason = text(row["invalid_reason"]) or text(row["outcome_reason"]) or "no reason is given"
        is_expected = run.row.expect == row["outcome"]
        what = tuple(name for name in (run.row.study_run, run.row.method, run.row.cluster, run.row.model) if name)
        found.append(
            Ending(
                run=index,
                name=run.row.run_id or run.row.source or "",
                what=what,
                outcome=str(row["outcome"]),
                reason=reason,
                cause=cause_title(run),
                remedy=None if is_expected else _first_remedy(run),
                is_expected=is_expected,
            )
        )
    return found


def invalid_table(ended: Sequence[Ending]) -> dict[str, Table]:
    """The INVALID runs as a table under its heading, without figures; nothing where there are none."""
    rows = [
        {"Run": one.name, "What": " · ".join(one.what), "Outcome": one.outcome, "Why": one.reason}
        for one in ended
        if one.outcome == Outcome.INVALID.value
    ]
    return {"INVALID runs": Table(rows[0], rows)} if rows else {}


def cause_title(run: ReportedRun) -> str | None:
    """What the diagnosis calls the cause, and how sure it is where that is little; None where none was recognised."""
    return None if run.diagnosis.get("cause", "none") in _NO_CAUSE else with_doubt(run, str(run.diagnosis["title"]))


def _first_remedy(run: ReportedRun) -> str | None:
    """The first thing to do, behind what comes before it."""
    lines = [line.strip() for line in str(run.diagnosis.get("remedy") or "").splitlines()]
    until = next((n for n, line in enumerate(lines, 1) if not line.startswith(FIRST)), len(lines))
    return "; then ".join(lines[:until]) if lines and cause_title(run) else None
