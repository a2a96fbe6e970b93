"""The comparison against an earlier run or table: ratios, and what got worse beyond a tolerance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hpc_llm.errors import RequestError
from hpc_llm.parse import COLUMNS as RUN_COLUMNS
from hpc_llm.parse.rows import TRAIN, kind_of_task, row_from
from hpc_llm.records.run import Outcome
from hpc_llm.report.comparison import SHAPE, as_numbers, compare, count, figure, run_table, text
from hpc_llm.report.metric import MFU, PEAK_ALLOCATED, STEP_P50, TOKENS, Metric
from hpc_llm.report.runs import ReportedRun, collect
from hpc_llm.text.shown import plain_text

COMPARED: tuple[Metric, ...] = (TOKENS, MFU, STEP_P50, PEAK_ALLOCATED)
"""Their ratios are shown."""
WATCHED: tuple[Metric, ...] = (TOKENS, PEAK_ALLOCATED)
"""A change for the worse in one of these is a regression; MFU and step time follow the throughput."""
_KEY = (*SHAPE, "cluster", "nodes", "world_size", "method", "precision")
_Key = tuple[int | str | None, ...]
_COUNTED = ("micro_batch_size", "gradient_accumulation_steps", "sequence_length", "nodes", "world_size")
_NEEDED = ("method", "model", "outcome", "tokens_per_second", "peak_allocated_bytes")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row of the comparison against its counterpart in the baseline."""

    row: int
    """Its index in the comparison."""
    ratios: dict[str, float | None]
    """Metric name -> now over then; empty for a row that did not complete."""
    then: dict[str, float | None]
    regressions: tuple[str, ...]
    """What got worse, in words."""
    same_setting: bool
    """False where a single baseline run of another cluster, method or number of GPUs is only a yardstick."""

    @property
    def is_regression(self) -> bool:
        return bool(self.regressions)


def read_baseline(path: Path) -> pd.DataFrame:
    """The baseline's rows: of a run, a folder or log of runs, a CSV of `hpc-llm parse` or this report's results.csv.

    Raises:
        RequestError: it is not there, or is not one of these.
    """
    if not path.exists():
        raise RequestError(
            f"there is no baseline {path}: give a run folder, a log, or a CSV of hpc-llm parse or report."
        )
    if path.suffix.lower() != ".csv":
        runs = [run for run in collect([path]) if run.is_known]
        if not runs:
            raise RequestError(
                f"the baseline {path} holds no run: give a run folder, a log, or a CSV of hpc-llm parse."
            )
        return compare(run_table(runs))
    table = _read_csv(path)
    return table if "runs" in table.columns else compare(run_table(_as_runs(table)))


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype=object, keep_default_na=False, na_values=[""])
    except (ValueError, OSError) as error:
        raise RequestError(f"cannot read the baseline {path} as CSV: {error}") from error
    absent = [name for name in _NEEDED if name not in table.columns]
    if absent:
        raise RequestError(
            f"the baseline {path} lacks the columns {', '.join(absent)}: give a CSV of hpc-llm parse or report."
        )
    if "kind" not in table.columns:  # written before there was more than one
        tasks = table["task"] if "task" in table.columns else [None] * len(table)
        table["kind"] = [kind_of_task(text(task)) or TRAIN for task in tasks]
    for name in RUN_COLUMNS:
        if name not in table.columns:
            table[name] = None
    table = as_numbers(table)
    for name in table.columns:
        if not pd.api.types.is_numeric_dtype(table[name]):
            table[name] = [plain_text(value) if isinstance(value, str) else None for value in table[name]]
    return table


def _as_runs(table: pd.DataFrame) -> list[ReportedRun]:
    records = table[list(RUN_COLUMNS)].to_dict("records")
    return [ReportedRun(row=row_from({str(k): v for k, v in record.items() if not pd.isna(v)})) for record in records]


def changes(compared: pd.DataFrame, baseline: pd.DataFrame, tolerance: float) -> list[Change]:
    """Each row of `compared` that has a counterpart, in order.

    A counterpart agrees in task, model, batch shape, cluster, nodes, ranks, method and precision; where several do, the
    one of the same GPU and settings is taken, else their mean. Where the baseline is one run, rows of its model and
    batch shape that agree in nothing else get ratios too, and are never regressions.
    """
    then, exactly = _completed(baseline, _key), _completed(baseline, _exact_key)
    single = next(iter(then.items())) if len(then) == 1 else None
    now = _completed_keys(compared)
    found = []
    for index, row in compared.iterrows():
        key, position = _key(row), int(str(index))
        if key in then and _is_completed(row):
            found.append(_change(position, row, exactly.get(_exact_key(row), then[key]), tolerance))
        elif key in then and key not in now:  # where repeats of it complete, their own row is compared
            worse = (f"{row['outcome']}, completed before",)
            found.append(Change(row=position, ratios={}, then=then[key], regressions=worse, same_setting=True))
        elif single and _is_completed(row) and key[: len(SHAPE)] == single[0][: len(SHAPE)]:
            ratios = _ratios(row, single[1])
            found.append(Change(row=position, ratios=ratios, then=single[1], regressions=(), same_setting=False))
    return found


def became_invalid(invalid: pd.DataFrame, compared: pd.DataFrame, baseline: pd.DataFrame) -> list[int]:
    """Index of the INVALID runs whose counterpart in the baseline completed, and no repeat of which completes now."""
    lost = _completed(baseline, _key).keys() - _completed_keys(compared)
    return [int(str(index)) for index, row in invalid.iterrows() if _key(row) in lost]


def _completed_keys(compared: pd.DataFrame) -> set[_Key]:
    return {_key(row) for _, row in compared.iterrows() if _is_completed(row)}


def _is_completed(row: pd.Series) -> bool:
    return bool(row["outcome"] == Outcome.COMPLETED.value)


def _completed(baseline: pd.DataFrame, key_of: Callable[[pd.Series], _Key]) -> dict[_Key, dict[str, float | None]]:
    """The figures of the baseline's completed rows."""
    places: dict[_Key, list[pd.Series]] = {}
    for _, row in baseline.iterrows():
        if _is_completed(row):
            places.setdefault(key_of(row), []).append(row)
    return {key: _mean_of(rows) for key, rows in places.items()}


def _key(row: pd.Series) -> _Key:
    return tuple(count(row[name]) if name in _COUNTED else text(row[name]) for name in _KEY)


def _exact_key(row: pd.Series) -> _Key:
    return (*_key(row), text(row["gpu"]), text(row["configuration"]) or None)


def _mean_of(rows: list[pd.Series]) -> dict[str, float | None]:
    """Figures of rows that differ only in what the key leaves out, each weighted with its runs; of a peak the largest."""
    figures: dict[str, float | None] = {}
    for metric in COMPARED:
        known = [(figure(row[metric.name]), count(row["runs"]) or 1) for row in rows]
        pairs = [(value, n) for value, n in known if value is not None]
        if not pairs:
            figures[metric.name] = None
        elif metric.of_repeats == "max":
            figures[metric.name] = max(value for value, _ in pairs)
        else:
            figures[metric.name] = sum(value * n for value, n in pairs) / sum(n for _, n in pairs)
    return figures


def _ratios(row: pd.Series, then: dict[str, float | None]) -> dict[str, float | None]:
    ratios: dict[str, float | None] = {}
    for metric in COMPARED:
        now, before = figure(row[metric.name]), then[metric.name]
        ratios[metric.name] = now / before if now is not None and before else None
    return ratios


def _change(index: int, row: pd.Series, then: dict[str, float | None], tolerance: float) -> Change:
    ratios = _ratios(row, then)
    worse = tuple(w for w in (_worse(metric, ratios[metric.name], tolerance) for metric in WATCHED) if w)
    return Change(row=index, ratios=ratios, then=then, regressions=worse, same_setting=True)


def _worse(metric: Metric, ratio: float | None, tolerance: float) -> str:
    """`tokens/s 7.3 % lower`, empty where it is within the tolerance."""
    if ratio is None:
        return ""
    change = (ratio - 1) if metric.better == "low" else (1 - ratio)
    if change <= tolerance + 1e-12:
        return ""
    word = "higher" if metric.better == "low" else "lower"
    return f"{metric.title[0].lower()}{metric.title[1:]} {change:.1%} {word}".replace("%", " %")
