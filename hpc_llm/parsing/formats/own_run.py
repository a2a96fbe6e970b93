"""A run folder of hpc-llm: its plan, the worker's result, its steps, and what the judge says of its end.

A run that was killed has no result any more: its means come from the steps that it appended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from hpc_llm.causes.program import NONE
from hpc_llm.parsing.registry import FolderFormat
from hpc_llm.parsing.rows import COLUMNS, INFER, STEP_COLUMNS, Row, Step, kind_of_task, measures_nothing, searches
from hpc_llm.planning.study import StudyRun
from hpc_llm.records import metrics
from hpc_llm.records.agreement import contradiction_in, ranks_that_differ
from hpc_llm.records.files import read_json_lines
from hpc_llm.records.possible import bounded, is_possible, possible
from hpc_llm.records.run import Outcome, RunPaths, is_run
from hpc_llm.runs.fields import Fields, iso
from hpc_llm.runs.looks import Look, look
from hpc_llm.runs.progress import Steps, read_steps
from hpc_llm.runs.records import Records
from hpc_llm.runs.statuses import why_a_copy

NAME = "hpc-llm"
_TEXTS = frozenset(field.name for field in dataclasses.fields(Row) if "str" in str(field.type))
_PLANNED = (
    "cluster", "method", "task", "model", "nodes", "gpus_per_node", "world_size", "micro_batch_size",
    "gradient_accumulation_steps", "global_batch_size", "sequence_length", "precision", "warmup_steps", "tensor_parallel",
    "train_samples", "epochs",
)  # fmt: skip
_PLACE = ("cluster", "task", "model", "nodes", "gpus_per_node", "world_size")
"""What the plan of a task that measures nothing says of it; it has a method and a batch for no use, but for the method of a search."""
_OF_ANY = ("gpu", "elapsed_s")
"""What a result says of a task that measures nothing, besides; that of one that failed is written like a training's."""
_OF_THE_SEARCH = ("run_id", "job_id", "study", "study_run", "smoke")
"""What the run of a search says of each of its tries."""
_OF_THE_JUDGE = frozenset(
    (
        "run_id",
        "source",
        "format",
        "kind",
        "cause",
        "cause_confidence",
        "try",
        "outcome",
        "outcome_reason",
        "invalid_reason",
        "profile",
    )
)


def rows(folders: Iterable[Path]) -> Iterator[Row]:
    """One row a run, in their order."""
    given = list(folders)
    for folder, found in zip(given, look(RunPaths(folder.absolute()) for folder in given), strict=True):
        yield row_of(found, str(folder))


def tries_of(folder: Path, row: Row) -> Iterator[tuple[Look, Row]]:
    """The tries of a search in that folder, whose own row is `row`: each is a training with a row of its own."""
    run = RunPaths(folder.absolute())
    numbered = run.search_tries()
    for (number, place), one in zip(numbered, look(place for _, place in numbered), strict=True):
        of_try = row_of(one, str(folder / place.root.relative_to(run.root)))
        own: dict[str, Any] = {name: getattr(row, name) for name in _OF_THE_SEARCH}
        if row.outcome is None and one.records.exit is None:
            own |= {"outcome": None, "outcome_reason": row.outcome_reason, "cause": None, "cause_confidence": None}
        elif row.outcome == of_try.outcome == Outcome.CANCELLED.value:  # it fell with its search
            own |= {name: getattr(row, name) for name in ("outcome_reason", "cause", "cause_confidence")}
        yield one, dataclasses.replace(of_try, **own, try_=number)


def row_of(found: Look, source: str) -> Row:
    """The row of a run that was looked at."""
    records = found.records
    task = records.plan.get("task")
    in_place = (*_PLACE, "method") if searches(task) else _PLACE
    planned = in_place if measures_nothing(task) else _PLANNED
    columns: dict[str, Any] = _columns_in({name: records.plan.get(name) for name in planned})
    if contradiction_in(records.plan):
        columns.pop("global_batch_size", None)
    if ranks_that_differ(records.plan):
        columns |= {"nodes": None, "world_size": None}
    result = records.result.values if records.result else {}
    columns |= {} if measures_nothing(task) else _of_training(records.plan)
    made = read_steps(records.run.steps, records.plan) if not result and records.has_steps else Steps()
    if measures_nothing(task):
        result = {name: value for name, value in result.items() if name in (*in_place, *_OF_ANY)}
    columns |= _columns_in(result) if result else _from_steps(made, columns)
    if "method" in planned:
        columns["method"] = records.method or columns.get("method")
    columns["job_id"] = _job_id(records)
    columns["started_at"] = _started_at(records)
    if columns.get("elapsed_s") is None and records.exit is not None:
        columns["elapsed_s"] = records.exit.elapsed_s
    columns |= _end(found, made.told)
    columns |= _place(records) | _predicted(records)
    columns["kind"] = kind_of_task(columns.get("task"))
    columns["profile"] = bounded("profile", " ".join(path.name for path in records.run.profiles())) or None
    run_id = records.run.run_id  # the folder's name, as status has it: a copy has one of its own
    return Row(**{**columns, "run_id": run_id, "source": source, "format": NAME, "try_": _try(records)})


def _columns_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a record holds; what cannot be, because somebody edited it, counts as missing."""
    held = {n: v for n, v in record.items() if n in COLUMNS and n not in _OF_THE_JUDGE}
    known: dict[str, Any] = {n: bounded(n, v) for n, v in held.items() if n in _TEXTS and isinstance(v, str)}
    return known | {n: v for n, v in held.items() if is_possible(n, v)}


def _of_training(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What the plan of a task that trains says of how; inference has these fields for no use."""
    optimizer, share = plan.get("optimizer"), plan.get("recompute")
    if kind_of_task(plan.get("task")) == INFER or not isinstance(optimizer, Mapping):
        return {}
    rate = _columns_in({"learning_rate": optimizer.get("lr")})
    if not isinstance(share, (bool, float)) or not 0 <= share <= 1:
        return rate
    return {**rate, "recompute": float(share)}  # true is all layers


def _place(records: Records) -> dict[str, Any]:
    """Its place in its study."""
    place = StudyRun.of_record(records.experiment.get("study"))
    if place is None:
        return dict.fromkeys(("study", "study_run", "expect", "smoke"))
    names = {"study": bounded("study", place.study), "study_run": bounded("study_run", place.name)}
    return {**names, "expect": place.expect, "smoke": place.smoke or None}


def _predicted(records: Records) -> dict[str, Any]:
    """What was expected of it when it was submitted."""
    said = records.experiment.get("prediction")
    names = ("step_time_s", "peak_allocated_bytes")
    return _columns_in({f"predicted_{name}": said.get(name) for name in names}) if isinstance(said, dict) else {}


def _try(records: Records) -> int:
    """Which try the run is at, from 1."""
    earlier = len(records.run.earlier_tries()) if records.has_tries else 0
    return max(earlier + 1, len(records.starts), 1 + (records.exit.restart_count if records.exit else 0))


def _end(found: Look, of_steps: str | None) -> dict[str, Any]:
    judgement = found.judgement
    outcome, reason = judgement.outcome, judgement.reason
    reason = "; ".join(filter(None, (why_a_copy(found), reason, of_steps))) or None
    if outcome is None:
        reason = f"it is not over: {judgement.state}" + (f", {reason}" if reason else "")
    return {
        "outcome": outcome.value if outcome else None,
        "outcome_reason": reason,
        "invalid_reason": reason if outcome is Outcome.INVALID else None,
        "cause": judgement.cause.id if outcome else None,
        "cause_confidence": judgement.confidence if outcome and judgement.cause is not NONE else None,
    }


def steps(folder: Path) -> Iterator[Step]:
    """The steps of all tries, the earlier ones first; of a search those of each of its trainings."""
    run = RunPaths(folder.absolute())
    run_id = run.run_id
    tries = run.search_tries() or [*enumerate([*run.earlier_tries(), run], 1)]
    for number, one in tries:
        yield from _steps_in(one, run_id, str(folder), number)


def steps_of_last_try(run: RunPaths, row: Row) -> Iterator[Step]:
    """The steps that the row of the run sums up."""
    return _steps_in(run, row.run_id, row.source, row.try_)


def _steps_in(one: RunPaths, run_id: str | None, source: str | None, number: int | None) -> Iterator[Step]:
    for record in read_json_lines(one.steps):
        yield _step(record, run_id, source, number)


def _step(record: Mapping[str, Any], run_id: str | None, source: str | None, number: int | None) -> Step:
    known = {
        name: value
        for name, value in record.items()
        if name in STEP_COLUMNS and (isinstance(value, bool) if name == "skipped" else is_possible(name, value))
    }
    return Step(**{**known, "run_id": run_id, "source": source, "try_": number})


def _from_steps(made: Steps, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The summary that the worker could not write any more, of the last try; nothing of steps that contradict themselves or the plan."""
    if made.last is None or made.contradiction is not None:
        return {}
    times, ranks = made.measured, columns.get("world_size")
    summary: dict[str, Any] = {
        "loss_first": made.loss_first,
        "loss_last": made.loss_last,
        "peak_allocated_bytes": made.peak_allocated_bytes,
        "measured_steps": len(times) or None,
        "step_time_s_mean": made.step_time_s,
        "step_time_s_p50": metrics.percentile(times, 50),
        "step_time_s_p90": metrics.percentile(times, 90),
    }
    if (rate := made.tokens_per_second) is not None:
        summary["tokens_per_second"] = rate
        summary["tokens_per_second_per_gpu"] = rate / ranks if ranks else None
    return possible(summary)


def _job_id(records: Records) -> str | None:
    if records.identity is not None and records.identity.job_id is not None:
        return records.identity.job_id
    left = records.exit
    if left is None or left.job_id is None or "_" in left.job_id or left.array_task is None:
        return left.job_id if left else None
    return f"{left.job_id}_{left.array_task}"


def _started_at(records: Records) -> str | None:
    """ISO 8601, as the worker wrote it, else when the script began."""
    written = Fields(records.result.values).text("started_at") if records.result else None
    if written is not None and not _is_moment(written):
        written = None
    if written or records.exit is None or records.exit.started_at is None:
        return written or None
    return iso(records.exit.started_at)


def _is_moment(text: str) -> bool:
    """Whether it is a date with its time."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).year > 0
    except ValueError:
        return False


FORMAT = FolderFormat(
    name=NAME,
    is_in=is_run,
    rows=rows,
    within=lambda folder, row: (one for _, one in tries_of(folder, row)),
    steps=steps,
)
