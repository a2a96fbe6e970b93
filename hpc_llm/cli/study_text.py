"""The runs of a study for reading: as they will be submitted, and how they ended beside what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpc_llm.text.shown import one_line
from hpc_llm.text.tables import table, wrapped

if TYPE_CHECKING:
    from hpc_llm.api.layers import RunRequest
    from hpc_llm.job.batch import Batch
    from hpc_llm.planning.study import StudyRun


def run_documents(batch: Batch) -> list[dict[str, Any]]:
    """The runs of a batch as JSON types."""
    return [
        {
            "run_id": run_id,
            "cluster": one.plan.cluster,
            "method": one.plan.method,
            **(one.study.to_dict() if one.study else {}),
        }
        for run_id, one in zip(batch.run_ids, batch.planned, strict=True)
    ]


def run_list(found: Sequence[Batch], width: int | None) -> str:
    """One row a run: its name, where and with what it runs, what it has otherwise than others, and in which array."""
    rows = [row for number, batch in enumerate(found, 1) for row in _rows(batch, number)]
    arrays = sum(batch.array is not None for batch in found)
    alone = sum(len(batch.planned) for batch in found if batch.array is None)
    parts = [_counted(arrays, "job array")] * bool(arrays) + [_counted(alone, "job script")] * bool(alone)
    said = f"{_counted(len(rows), 'run')} in {' and '.join(parts)}; --run NAME shows the script of one."
    return "\n".join([*_listed(rows, width), "", wrapped(said, width, 0)]) + "\n"


def unplanned_list(runs: Sequence[RunRequest], width: int | None) -> str:
    """The same of runs of which not all can be planned, without their arrays."""
    rows = [[*_row(run.place, run.cluster, run.method), ""] for run in runs if run.place is not None]
    return "\n".join(_listed(rows, width)) + "\n"


def _listed(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    headers = ["run", "cluster", "method", "what differs", "expected", "job array"]
    kept = [i for i, name in enumerate(headers) if i < headers.index("expected") or any(row[i] for row in rows)]
    return table([[row[i] for i in kept] for row in rows], [headers[i] for i in kept], width)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _rows(batch: Batch, number: int) -> list[list[str]]:
    most = f", {batch.parallel} at a time" if batch.parallel else ""
    job = f"{number}: {len(batch.planned)} runs{most}" if batch.array else ""
    return [
        [*_row(one.study, one.plan.cluster, one.plan.method), job] for one in batch.planned if one.study is not None
    ]


def _row(place: StudyRun, cluster: str, method: str) -> list[str]:
    told = one_line(", ".join(f"{k}={v}" for k, v in differences(place.differs).items()))
    return [one_line(place.name), cluster, method, told, place.expect or ""]


def differences(differs: Any) -> dict[str, str]:
    """What a run has otherwise, without what stands in columns of its own."""
    return {k: v for k, v in differs.items() if k not in ("cluster", "method")}
