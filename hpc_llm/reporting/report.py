"""From runs to everything that a report shows, before any of it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpc_llm.errors import counted, notice
from hpc_llm.parsing import UNKNOWN_FORMAT
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.baseline import COMPARED, Change, became_invalid, changes, says_its_settings
from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import compare, run_table, text
from hpc_llm.reporting.files import gpus, method
from hpc_llm.reporting.incomparable import not_compared
from hpc_llm.reporting.metric import METRICS, TOKENS
from hpc_llm.reporting.outcomes import with_doubt
from hpc_llm.reporting.references import References, references
from hpc_llm.reporting.scaling import scaling
from hpc_llm.reporting.sections import Section, sections
from hpc_llm.reporting.statistics import CONFIDENCE_PERCENT
from hpc_llm.reporting.table import Cells, Table
from hpc_llm.reporting.together import note_of, note_of_adapted, note_of_unsteady
from hpc_llm.reporting.unbracketed import note_of_unbracketed

_NAMED = 3
"""So many inputs are named in a line."""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What the report was compared with."""

    path: Path
    tolerance: float
    changes: list[Change]
    became_invalid: list[int]
    """Index of runs that are INVALID now and whose counterpart completed."""
    not_compared: list[str] = field(default_factory=list)
    """A line for each row of which a watched figure, or all, could not be compared."""

    @property
    def num_regressions(self) -> int:
        return sum(change.is_regression for change in self.changes) + len(self.became_invalid)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The content of a report."""

    runs: Sequence[ReportedRun]
    table: Table
    """One row a run, by position in `runs`."""
    compared: Table
    """One row a setting and outcome."""
    sections: list[Section]
    scaling: Table
    references: References = field(default_factory=References)
    """What was measured beside the published figures that studies name."""
    baseline: Baseline | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def invalid(self) -> list[int]:
        """Positions of the INVALID runs."""
        return [i for i, row in self.table.items() if row["outcome"] == Outcome.INVALID.value]

    @property
    def unread(self) -> list[int]:
        """Positions of the inputs in which nothing was recognised."""
        return [i for i, run in enumerate(self.runs) if not run.is_known]


def make_report(
    runs: Sequence[ReportedRun], baseline: tuple[Path, Table] | None = None, tolerance: float = 0.05
) -> Report:
    """Compare `runs` with each other, and with the rows of `baseline` and where they are from."""
    table = run_table(runs)
    compared = compare(table)
    against = None
    if baseline is not None:
        path, then = baseline
        invalid = table.where(lambda row: row["outcome"] == Outcome.INVALID.value)
        lost = became_invalid(invalid, compared, then)
        found = changes(compared, then, tolerance)
        silent = sum(not says_its_settings(row) for row in (*compared, *then))
        if silent:
            notice(
                f"{counted(silent, 'row')} of the report and the baseline say too little of their settings to be compared: "
                "model, method, ranks, batch, sequence length, and the cluster or the GPU must be known."
            )
        gone = not_compared(compared, then, found, invalid)
        against = Baseline(path=path, tolerance=tolerance, changes=found, became_invalid=lost, not_compared=gone)
    parts = sections(compared)
    return Report(
        runs=runs,
        table=table,
        compared=compared,
        sections=parts,
        scaling=scaling(compared),
        references=references(runs, table, compared),
        baseline=against,
        notes=[
            *note_of(runs, table.column("beside")),
            *note_of_unsteady(runs),
            *note_of_adapted(runs),
            *note_of_unbracketed(runs, parts),
            *reading_notes(),
        ],
    )


def reading_notes() -> list[str]:
    """How the figures are to be read: the same words in every file."""
    return [
        "Means are over completed runs that are not INVALID. A run that ended otherwise has a row of its own with what "
        "it measured until then; it is in no mean and never the best.",
        "Runs of hpc-llm are repeats when their plans are equal but for the seed and what cannot change a measurement: name, time "
        "limit, account, and when, in which turn and with whose knowledge Slurm starts the job, and they ran the same software, fused "
        "the same, and adapted nothing otherwise; runs of different users never are. Logs of another program are taken for repeats "
        "when cluster or GPU, model, method, ranks and batch shape are known and everything that they say of their settings "
        "agrees, the number of steps included; what they do not say, as their data or learning rate, may differ. "
        f"n is their number, ± half the width of the {CONFIDENCE_PERCENT} % confidence interval of the mean (Student's t). "
        "Of two runs both values stand in brackets instead, and one run has neither.",
        "A method with settings in brackets or below its name differs in these from most runs of that method on that cluster; a "
        "learning rate, steps or data so told may differ from other rows of the table alone, or be told in all of them. Tries of a search for "
        "the micro batch, of few steps each, have tables of their own.",
        "An empty cell is unknown, never zero. GiB is 2^30 bytes.",
        *(f"{m.title}: {m.meaning}." for m in METRICS),
    ]


def results_table(report: Report) -> Table:
    """The rows of results.csv: the comparison, and the INVALID runs with their reason and without figures."""
    table = report.compared.copy()
    members = table.column("members")
    table.add("cause", (_causes(report, each) for each in members))
    if report.baseline is not None:
        _add_changes(table, report.baseline.changes)
    return Table(table.columns, [*table, *(_invalid_row(report, i, table.columns) for i in report.invalid)])


def _invalid_row(report: Report, index: int, columns: Sequence[str]) -> Cells:
    run = report.table[index]
    reason = text(run["invalid_reason"]) or text(run["outcome_reason"])
    told = {"runs": 1, "run_ids": _run_id(report, index), "cause": _causes(report, [index]), "outcome_reason": reason}
    figures = {metric.name for metric in METRICS}
    return {name: run.get(name) for name in columns if name not in figures} | told


def _causes(report: Report, members: Sequence[int]) -> str | None:
    """The ids of the causes that the diagnosis of these runs gives, with its confidence where that is little."""
    runs = (report.runs[i] for i in members)
    found = ((run, str(run.diagnosis.get("cause", "none"))) for run in runs)
    return " ".join(dict.fromkeys(with_doubt(run, cause) for run, cause in found if cause != "none")) or None


def _run_id(report: Report, index: int) -> str:
    return report.runs[index].row.run_id or report.runs[index].row.source or ""


def _add_changes(table: Table, found: Sequence[Change]) -> None:
    by_row = {change.row: change for change in found}
    for metric in COMPARED:
        ratios = [by_row[i].ratios.get(metric.name) if i in by_row else None for i in table.rows]
        table.add(f"baseline_ratio_{metric.name}", ratios)
    table.add("regression", ("; ".join(by_row[i].regressions) or None if i in by_row else None for i in table.rows))


def summary(report: Report) -> str:
    """One line: `42 runs: 30 completed, 3 OOM_DEVICE, …; 21 rows`."""
    known = report.table.where(lambda row: row["format"] != UNKNOWN_FORMAT)
    counts = Counter(known.column("outcome")).most_common()
    outcomes = ", ".join(f"{n} {name}" for name, n in counts)
    unread = (
        f"; {counted(len(report.unread), 'input')} without a known format: {_named(report)}" if report.unread else ""
    )
    return f"{counted(len(known), 'run')} ({outcomes}), {counted(len(report.compared), 'row')}{unread}"


def _named(report: Report) -> str:
    """The first of the inputs in which nothing was recognised."""
    names = [report.runs[index].source for index in report.unread[:_NAMED]]
    more = len(report.unread) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def regressions(report: Report) -> list[str]:
    """A line for each row that got worse than the baseline beyond the tolerance."""
    if report.baseline is None:
        return []
    worse = [(report.compared[c.row], c.regressions) for c in report.baseline.changes if c.is_regression]
    lines = [f"{method(r)} on {text(r['cluster'])}, {gpus(r)}: {'; '.join(words)}" for r, words in worse]
    return [*lines, *(f"{_run_id(report, i)}: INVALID, completed before" for i in report.baseline.became_invalid)]


def best_rate(section: Section) -> Cells | None:
    """The completed row of most tokens/s; none of runs that shared their machine, or whose steps are unsteady."""
    done = [
        row
        for row in section.rows
        if row["outcome"] == Outcome.COMPLETED.value and not row["is_marred"] and row[TOKENS.name] is not None
    ]
    return max(done, key=lambda row: row[TOKENS.name], default=None)
