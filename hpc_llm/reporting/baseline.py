"""The comparison against an earlier run or table: ratios, and what got worse beyond a tolerance."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from hpc_llm.corpus.reading import no_utf8
from hpc_llm.errors import RequestError, notice
from hpc_llm.parsing import COLUMNS as RUN_COLUMNS
from hpc_llm.parsing.rows import TRAIN, kind_of_task, row_from
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import ReportedRun, collect
from hpc_llm.reporting.comparison import (
    MUST_BE_KNOWN,
    SHAPE,
    as_numbers,
    compare,
    count,
    figure,
    no_numbers,
    run_table,
    text,
)
from hpc_llm.reporting.metric import MFU, PEAK_ALLOCATED, STEP_P50, TOKENS, Metric
from hpc_llm.reporting.table import Cells, Table
from hpc_llm.text.shown import plain_text

COMPARED: tuple[Metric, ...] = (TOKENS, MFU, STEP_P50, PEAK_ALLOCATED)
"""Their ratios are shown."""
WATCHED: tuple[Metric, ...] = (TOKENS, PEAK_ALLOCATED)
"""A change for the worse in one of these is a regression; MFU and step time follow the throughput."""
_KEY = (*SHAPE, "cluster", "nodes", "world_size", "method", "precision")
_Key = tuple[int | str | None, ...]
_COUNTED = ("micro_batch_size", "gradient_accumulation_steps", "sequence_length", "nodes", "world_size")
_LONGEST_CELL = 1 << 30
_SAMPLE = 4096
"""Bytes by which the encoding of a file is guessed that is not in UTF-8."""
_OF_SPREADSHEETS = {
    ".xlsx": "save the sheet as CSV, with commas",
    ".xls": "save the sheet as CSV, with commas",
    ".ods": "save the sheet as CSV, with commas",
    ".tsv": "write it with commas in place of tabs, as CSV",
}
_NEEDED = ("method", "model", "outcome", "tokens_per_second", "peak_allocated_bytes")


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row of the comparison against its counterpart in the baseline."""

    row: int
    """Its number in the comparison."""
    ratios: dict[str, float | None]
    """Metric name -> now over then; empty for a row that did not complete."""
    counterparts: list[Cells]
    then: dict[str, float | None]
    regressions: tuple[str, ...]
    """What got worse, in words."""
    same_setting: bool
    """False where a single baseline run of another cluster, method or number of GPUs is only a yardstick."""
    unknown: tuple[str, ...] = ()
    """Which of the watched figures could not be compared, and on which side they are gone, in words."""

    @property
    def is_regression(self) -> bool:
        return bool(self.regressions)

    @property
    def is_compared(self) -> bool:
        """Whether anything that is watched was compared at all."""
        known = any(self.ratios.get(metric.name) is not None for metric in WATCHED)
        return self.same_setting and (known or self.is_regression)


def read_baseline(path: Path) -> Table:
    """The baseline's rows: of a run, a folder or log of runs, a CSV of `hpc-llm parse` or this report's results.csv.

    Raises:
        RequestError: it is not there, or is not one of these.
    """
    if not path.exists():
        raise RequestError(
            f"there is no baseline {path}: give a run folder, a log, or a CSV of hpc-llm parse or report."
        )
    if path.suffix.lower() not in (".csv", *_OF_SPREADSHEETS):
        runs = [run for run in collect([path]) if run.is_known]
        if not runs:
            raise RequestError(
                f"the baseline {path} holds no run: give a run folder, a log, or a CSV of hpc-llm parse."
            )
        return compare(run_table(runs))
    table = _read_csv(path)
    return table if "runs" in table.columns else compare(run_table(_as_runs(table)))


def _read_csv(path: Path) -> Table:
    table = _csv_rows(path)
    absent = [name for name in _NEEDED if name not in table.columns]
    if absent:
        raise RequestError(
            f"the baseline {path} lacks the columns {', '.join(absent)}: give a CSV of hpc-llm parse or report."
        )
    if "kind" not in table.columns:  # written before there was more than one
        table.add("kind", [kind_of_task(text(row.get("task"))) or TRAIN for row in table])
    _tell_unread(path, table)
    table = as_numbers(Table(dict.fromkeys((*table.columns, *RUN_COLUMNS, "search")), table.rows))
    for row in table:
        row.update({name: plain_text(value) for name, value in row.items() if isinstance(value, str)})
    return table


def _csv_rows(path: Path) -> Table:
    """The texts of a CSV file; an empty cell is missing."""
    if (way := _OF_SPREADSHEETS.get(path.suffix.lower())) is not None:
        raise RequestError(f"the baseline {path} is no CSV: {way}.")
    try:
        csv.field_size_limit(_LONGEST_CELL)  # a row of many runs names them all
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            columns = next(reader, [])
            rows = [row for row in reader if row]
    except UnicodeDecodeError:
        with path.open("rb") as opened:
            raise RequestError(f"the baseline {no_utf8(str(path), None, opened.read(_SAMPLE))}") from None
    except (ValueError, OSError, csv.Error) as error:
        raise RequestError(f"cannot read the baseline {path} as CSV: {error}") from error
    if not columns:
        raise RequestError(f"cannot read the baseline {path} as CSV: it is empty")
    other = next((mark for mark in (";", "\t", "|") if len(columns) == 1 and mark in columns[0]), None)
    if other is not None:
        shown = "tabs" if other == "\t" else f"'{other}'"
        raise RequestError(
            f"cannot read the baseline {path} as CSV: its columns are separated by {shown}, and commas are read. Write it anew with commas, "
            "and its numbers with a point (12074.6)."
        )
    if any(len(row) > len(columns) for row in rows):
        raise RequestError(
            f"cannot read the baseline {path} as CSV: a row has more cells than its {len(columns)} columns"
        )
    return Table(columns, [{name: cell or None for name, cell in zip(columns, row, strict=False)} for row in rows])


def _tell_unread(path: Path, table: Table) -> None:
    """Say which cells of figures are no numbers, as a spreadsheet writes them: they are left empty, and nothing is compared with them."""
    found = no_numbers(table)
    if found:
        row, name, cell = found[0]
        more = f", and so are {len(found) - 1} more cells" if len(found) > 1 else ""
        notice(
            f"the baseline {path}: {name} of row {row + 1} is '{cell}', which is no number as it is read (12074.6, without commas){more}: "
            "it is left empty"
        )


def _as_runs(table: Table) -> list[ReportedRun]:
    """The rows of a CSV of `parse`, in which the tries of a search have one run id and a number each."""
    known = ({name: row[name] for name in RUN_COLUMNS if row[name] is not None} for row in table)
    rows = [row_from(columns) for columns in known]
    numbers: dict[str | None, set[int | None]] = {}
    for row in rows:
        numbers.setdefault(row.run_id, set()).add(row.try_)
    return [
        ReportedRun(row=row, of_search=row.run_id if len(numbers[row.run_id]) > 1 and row.run_id else None)
        for row in rows
    ]


def changes(compared: Table, baseline: Table, tolerance: float) -> list[Change]:
    """Each row of `compared` that has a counterpart, in order.

    A counterpart agrees in task, model, batch shape, cluster, nodes, ranks, method and precision, and is of the same runs, of the
    same GPU and settings, or the only one on both sides: rows of other settings are no measure. Where the baseline is one run, rows of its model and
    batch shape that agree in nothing else get ratios too, and are never regressions. What does not say its settings is
    not compared: two unknown values may differ.
    """
    compared = compared.where(says_its_settings)
    then = Then(baseline.where(says_its_settings), compared)
    single = next(iter(then.keys)) if len(then.keys) == 1 else None
    now = _completed_keys(compared)
    now_exactly = {exact_key_of(row) for row in compared if is_completed(row)}
    found = []
    for position, row in compared.items():
        key, counterparts = key_of(row), then.counterparts(row)
        if counterparts and is_completed(row):
            found.append(_change(position, row, counterparts, tolerance))
        elif key in then.keys and (key not in now or (then.knows(row) and exact_key_of(row) not in now_exactly)):
            # Where repeats of it complete, their own row is compared.
            worse = (f"{row['outcome']}, completed before",)
            found.append(_found(position, counterparts or then.keys[key], regressions=worse))
        elif single and is_completed(row) and key[: len(SHAPE)] == single[: len(SHAPE)]:
            found.append(_found(position, then.rows, ratios=_ratios(row, _mean_of(then.rows)), same_setting=False))
    return found


def _found(
    position: int,
    counterparts: list[Cells],
    ratios: dict[str, float | None] | None = None,
    regressions: tuple[str, ...] = (),
    unknown: tuple[str, ...] = (),
    same_setting: bool = True,
) -> Change:
    return Change(
        row=position,
        ratios=ratios or {},
        counterparts=counterparts,
        then=_mean_of(counterparts),
        regressions=regressions,
        same_setting=same_setting,
        unknown=unknown,
    )


class Then:
    """The completed rows of a baseline, by what they agree in with their counterparts in `compared`."""

    def __init__(self, baseline: Table, compared: Table) -> None:
        self.now: dict[_Key, list[Cells]] = {}
        for row in compared:
            self.now.setdefault(key_of(row), []).append(row)
        self.rows = [row for row in baseline if is_completed(row)]
        self.keys: dict[_Key, list[Cells]] = {}
        self._exactly: dict[_Key, list[Cells]] = {}
        for row in self.rows:
            self.keys.setdefault(key_of(row), []).append(row)
            self._exactly.setdefault(exact_key_of(row), []).append(row)

    def knows(self, row: Cells) -> bool:
        """Whether one of them is of the same GPU and settings."""
        return exact_key_of(row) in self._exactly

    def counterparts(self, row: Cells) -> list[Cells]:
        """The rows that `row` is compared with: of the same runs, else of the same GPU and settings, else the only one of its key.

        A row of which runs stand in other rows now is of several settings, as one of a CSV that does not say them.
        """
        rows = self.keys.get(key_of(row), [])
        others = [one for one in self.now[key_of(row)] if one is not row]
        same = [one for one in rows if _runs(one) and _runs(one) == _runs(row)]
        free = [one for one in rows if not any(_runs(one) & _runs(other) for other in others)]
        if same or (same := [one for one in free if _runs(one) & _runs(row)]):
            return same
        exact = [one for one in free if exact_key_of(one) == exact_key_of(row)]
        if not exact and not any(map(is_completed, others)):
            exact = free
        return exact if len(exact) == 1 else []


def _runs(row: Cells) -> set[str]:
    return set((text(row.get("run_ids")) or "").split())


def says_its_settings(row: Cells) -> bool:
    """Whether all is known in which a row and its counterpart must agree."""
    return all(row[name] is not None for name in MUST_BE_KNOWN) and (
        row["cluster"] is not None or row["gpu"] is not None
    )


def became_invalid(invalid: Table, compared: Table, baseline: Table) -> list[int]:
    """Numbers of the INVALID runs whose counterpart in the baseline completed, and no repeat of which completes now."""
    invalid, compared, baseline = (each.where(says_its_settings) for each in (invalid, compared, baseline))
    lost = Then(baseline, compared).keys.keys() - _completed_keys(compared)
    return [index for index, row in invalid.items() if key_of(row) in lost]


def _completed_keys(compared: Table) -> set[_Key]:
    return {key_of(row) for row in compared if is_completed(row)}


def is_completed(row: Cells) -> bool:
    return bool(row["outcome"] == Outcome.COMPLETED.value)


def key_of(row: Cells) -> _Key:
    """What a row and its counterpart agree in."""
    return tuple(count(row[name]) if name in _COUNTED else text(row[name]) for name in _KEY)


def exact_key_of(row: Cells) -> _Key:
    """The same with the GPU, and what sets the row apart from others of its method."""
    return (*key_of(row), text(row["gpu"]), text(row["configuration"]) or None)


def _mean_of(rows: list[Cells]) -> dict[str, float | None]:
    """Figures of rows that differ only in what the key leaves out, each weighted with its runs; of a peak the largest."""
    figures: dict[str, float | None] = {}
    for metric in COMPARED:
        known = [(figure(row[metric.name]), count(row["runs"]) or 1) for row in rows]
        pairs = [(value, n) for value, n in known if value is not None and value > 0]
        if not pairs:
            figures[metric.name] = None
        elif metric.of_repeats == "max":
            figures[metric.name] = max(value for value, _ in pairs)
        else:
            figures[metric.name] = sum(value * n for value, n in pairs) / sum(n for _, n in pairs)
    return figures


def _ratios(row: Cells, then: dict[str, float | None]) -> dict[str, float | None]:
    return {metric.name: _ratio(figure(row[metric.name]), then[metric.name]) for metric in COMPARED}


def _ratio(now: float | None, before: float | None) -> float | None:
    """None where one of them is no measured figure: these are finite, and not below 0."""
    if now is None or before is None or now < 0 or before <= 0:
        return None
    ratio = now / before
    return ratio if math.isfinite(ratio) else None


def _change(index: int, row: Cells, counterparts: list[Cells], tolerance: float) -> Change:
    ratios = _ratios(row, _mean_of(counterparts))
    worse = tuple(w for w in (_worse(metric, ratios[metric.name], tolerance) for metric in WATCHED) if w)
    unknown = tuple(w for w in (_unknown(metric, ratios[metric.name], row, counterparts) for metric in WATCHED) if w)
    return _found(index, counterparts, ratios, worse, unknown)


def _unknown(metric: Metric, ratio: float | None, row: Cells, counterparts: list[Cells]) -> str:
    """`tokens/s is unknown now`, empty where the metric was compared.

    Memory of which neither side knows anything is not watched: on a CPU, and in many a log, nobody measures it.
    """
    name = _in_sentence(metric)
    if not any(_is_known(metric, one) for one in (row, *counterparts)):
        return f"{name} is unknown in both" if metric is TOKENS else ""
    before = all(_is_known(metric, one) and not _is_partial(metric, one) for one in counterparts)
    sides = {"now": _is_known(metric, row) and not _is_partial(metric, row), "in the baseline": before}
    gone = " and ".join(where for where, is_there in sides.items() if not is_there)
    runs = [one for one in (row, *counterparts) if _is_partial(metric, one)]
    if gone:
        return f"{name} is unknown {gone}{', of some of the runs' if runs else ''}"
    return "" if ratio is not None else f"{name} is no figure that can be compared"


def _is_known(metric: Metric, row: Cells) -> bool:
    value = figure(row[metric.name])
    return value is not None and value > 0


def _is_partial(metric: Metric, row: Cells) -> bool:
    """Whether only some of the runs of a row have it."""
    return metric.name in (row.get("known_in_part") or ())


def _in_sentence(metric: Metric) -> str:
    return f"{metric.title[0].lower()}{metric.title[1:]}"


def _worse(metric: Metric, ratio: float | None, tolerance: float) -> str:
    """`tokens/s 7.3 % lower`, empty where it is within the tolerance."""
    if ratio is None:
        return ""
    change = (ratio - 1) if metric.better == "low" else (1 - ratio)
    if change <= tolerance + 1e-12:
        return ""
    word = "higher" if metric.better == "low" else "lower"
    return f"{_in_sentence(metric)} {change:.1%} {word}".replace("%", " %")
