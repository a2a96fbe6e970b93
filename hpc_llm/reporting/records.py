"""What stands behind the rows and runs of the page: facts, figures, versions, plan, script, result, and why a run ended.

Runs of one study differ in a few lines of these, so each line is in the page once: a list of them is written as places
in one common list, `[start, count, start, count, …]`. It needs no decompression, so any browser reads it from a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from hpc_llm.reporting.collect import ReportedRun
from hpc_llm.reporting.comparison import count, figure, text
from hpc_llm.reporting.endings import cause_title
from hpc_llm.reporting.files import method
from hpc_llm.reporting.metric import METRICS
from hpc_llm.reporting.report import Report
from hpc_llm.reporting.table import Cells
from hpc_llm.text.shown import shown

Item = str | tuple[str, ...]
"""A line of text, or a row of texts."""


class SharedItems:
    """Items that many lists have in common, each kept once, in the order in which they first came."""

    def __init__(self) -> None:
        self._places: dict[Item, int] = {}

    def add(self, items: Iterable[Item]) -> list[int]:
        """The places of `items` as pairs of start and count.

        >>> shared = SharedItems()
        >>> shared.add(["a", "b", "c"]), shared.add(["b", "c", "x", "b"])
        ([0, 3], [1, 3, 1, 1])
        """
        ranges: list[int] = []
        for item in items:
            place = self._places.setdefault(item, len(self._places))
            if ranges and place == ranges[-2] + ranges[-1]:
                ranges[-1] += 1
            else:
                ranges += [place, 1]
        return ranges

    def items(self) -> list[Item]:
        return list(self._places)


def records(report: Report) -> dict[str, Any]:
    """The rows and runs of the page's dialog, and the items of which they consist."""
    shared = SharedItems()
    rows = {i: {"title": _title(row), "runs": row["members"]} for i, row in report.compared.items()}
    runs = [_behind(run, report.table[i], shared) for i, run in enumerate(report.runs)]
    return {"rows": rows, "runs": runs, "items": shared.items()}


def run_name(run: ReportedRun) -> str:
    """The run's id, or where it was read from."""
    return run.row.run_id or run.row.source or "unnamed run"


def plain(value: Any) -> Any:
    """`value` as JSON has it; what is no finite number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {shown(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int)) else shown(str(value))


def _title(row: Cells) -> str:
    return f"{method(row) or 'unknown method'} on {text(row['cluster']) or 'an unknown cluster'}"


def _behind(run: ReportedRun, row: Cells, shared: SharedItems) -> dict[str, Any]:
    failure = "\n".join(str(run.failure[k]) for k in ("type", "message", "traceback") if run.failure.get(k))
    result = json.dumps(plain(run.result), indent=1, ensure_ascii=False) if run.result else ""
    lists: dict[str, Iterable[Item]] = {
        "facts": _facts(run, row),
        "figures": [(m.header, m.text(figure(row[m.name]))) for m in METRICS if m.text(figure(row[m.name]))],
        "notices": [str(notice) for notice in run.notices],
        "versions": [(str(name), str(value)) for name, value in run.versions.items() if value is not None],
        "plan": [(name, _compact(value), str(run.origins.get(name, ""))) for name, value in run.plan.items()],
        "script": run.script,
        "error": _lines(failure),
        "result": _lines(result),
    }
    found = {name: shared.add(items) for name, items in lists.items()}
    return {"id": run_name(run), **{k: v for k, v in found.items() if v}, **_cause(run, shared)}


def _facts(run: ReportedRun, row: Cells) -> list[Item]:
    facts = {
        "Outcome": row["outcome"], "Reason": text(row["invalid_reason"]) or text(row["outcome_reason"]),
        "From": run.folder, "Job": run.row.job_id, "Started": run.row.started_at, "Format": run.row.format,
        "GPU": run.row.gpu, "Measured steps": count(row["measured_steps"]), "Warm-up steps": count(row["warmup_steps"]),
        "hpc-llm commit": run.git_commit,
    }  # fmt: skip
    return [(name, str(value)) for name, value in facts.items() if value is not None]


def _cause(run: ReportedRun, shared: SharedItems) -> dict[str, Any]:
    """The diagnosis, empty where there is none."""
    found = run.diagnosis
    if not found:
        return {}
    evidence = [
        (e["file"] if e["line"] is None else f"{e['file']}:{e['line']}", str(e["text"]))
        for e in found.get("evidence", ())
    ]
    meaning = [str(found[name]) for name in ("summary", "meaning") if found.get(name)]
    return {
        "cause": cause_title(run) or "not recognised",
        "meaning": shared.add([" ".join(meaning)]) if meaning else [],
        "evidence": shared.add(evidence),
        "remedy": shared.add(_lines(found.get("remedy"))),
    }


def _lines(value: str | None) -> list[Item]:
    return list(value.split("\n")) if value else []


def _compact(value: Any) -> str:
    if value is None or isinstance(value, (str, int, float)):
        return "" if value is None else str(value)
    return json.dumps(plain(value), indent=1, ensure_ascii=False)
