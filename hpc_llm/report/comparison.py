"""Rows of runs to the rows of the comparison table: repeats together, everything else apart.

Runs are repeats when their plans are equal but for what cannot change a measurement (`hpc_llm.report.repeats`). The log of
another program has no plan: it is a repeat of another log of that program where all that tells runs apart is known and everything they say of their settings is equal. Means are over completed runs; a run that ended otherwise keeps a row of its own
with what it measured until then, and is never averaged or marked as the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

import pandas as pd

from hpc_llm.parse import COLUMNS, UNKNOWN_FORMAT
from hpc_llm.records.run import Outcome
from hpc_llm.report.metric import LOSS, METRICS, Metric
from hpc_llm.report.runs import ReportedRun
from hpc_llm.report.statistics import estimate
from hpc_llm.text.shown import one_line

SHAPE = ("kind", "task", "model", "micro_batch_size", "gradient_accumulation_steps", "sequence_length")
"""Runs that agree in these do the same work per GPU and step, and share a table."""
SETTING = ("cluster", "gpu", "nodes", "world_size", "method", "precision")
"""What is compared within a table."""
MUST_BE_KNOWN = ("model", "method", "world_size", "micro_batch_size", "sequence_length")
"""Without these, and the cluster or the GPU, two runs cannot be called repeats."""

_NUMBERS = frozenset(
    """num_parameters nodes gpus_per_node world_size micro_batch_size gradient_accumulation_steps global_batch_size
    sequence_length warmup_steps measured_steps step_time_s_mean step_time_s_p50 step_time_s_p90 tokens_per_second
    tokens_per_second_per_gpu model_tflops_per_gpu mfu peak_allocated_bytes peak_reserved_bytes peak_device_bytes
    peak_host_bytes loss_first loss_last eval_loss perplexity elapsed_s""".split()
)
_KEPT = (*SHAPE, *SETTING, "global_batch_size", "configuration", "outcome")
_SAID = ("format", "num_parameters", "gpus_per_node", "warmup_steps", "measured_steps")
"""What else logs without a plan say of their settings."""
_MOST_SETTINGS_SHOWN = 3
NOT_OVER = "NOT_OVER"
"""Stands for the outcome of a run that has none yet; it has not failed."""


def run_table(runs: Sequence[ReportedRun]) -> pd.DataFrame:
    """One row a run with the columns of `parse`, numbers as numbers, and `configuration`, what sets it apart.

    The index is the position in `runs`; missing is NaN.
    """
    table = pd.DataFrame([run.row.to_dict() for run in runs], columns=list(COLUMNS))
    table = as_numbers(table)
    table["outcome"] = [_outcome(run) for run in runs]
    table["configuration"] = _configurations(table, runs)
    table["plan"] = [_fingerprint(run.settings, sorted(run.settings)) if run.settings else "" for run in runs]
    _tell_plans_apart(table, runs)
    return table


def _tell_plans_apart(table: pd.DataFrame, runs: Sequence[ReportedRun]) -> None:
    """Name what differs between runs whose plans do, and that nothing else in the table tells apart."""
    places: dict[Hashable, list[int]] = {}
    for i, run in table[table["plan"] != ""].iterrows():
        places.setdefault(tuple(text(run[n]) for n in _KEPT if n != "outcome"), []).append(cast(int, i))
    for members in places.values():
        differing = _differing([runs[i].settings for i in members])
        for i in members if differing else ():
            known = [table.loc[i, "configuration"], _label(runs[i].settings, differing)]
            table.loc[i, "configuration"] = ", ".join(filter(None, known))


def _outcome(run: ReportedRun) -> str:
    if run.row.outcome is None and run.is_ours:
        return NOT_OVER
    outcome = run.row.outcome or ""
    return outcome if outcome in Outcome.__members__ else Outcome.UNKNOWN.value


def as_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with its figures as floats; what is no finite number is NaN."""
    for name in _NUMBERS & set(table.columns):
        values = pd.to_numeric(table[name], errors="coerce").astype(float)
        table[name] = values.where(values.abs() != float("inf"))
    return table


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each setting and outcome from `run_table`'s rows; INVALID ones and unread inputs have no row.

    Besides the columns of SHAPE, SETTING and METRICS, the latter with their intervals: `configuration`, `outcome`,
    `name`, that of its first run, `runs`, how many it stands for, `members`, their index in `table`, and `outcome_reason`.
    """
    usable = table[(table["outcome"] != Outcome.INVALID.value) & (table["format"] != UNKNOWN_FORMAT)]
    rows = [_combined(group) for group in _groups(usable)]
    columns = [*_KEPT, "name", "runs", *_figure_columns(), "steps", "outcome_reason", "members"]
    compared = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(_figure_columns(), float))
    order = ["kind", "model", "task", "sequence_length", "micro_batch_size", "gradient_accumulation_steps"]
    keys = [*order, "cluster", "gpu", "world_size", "method", "configuration", "outcome"]
    return compared.sort_values(keys, kind="stable", na_position="last", ignore_index=True)


def _figure_columns() -> list[str]:
    return [name for m in METRICS for name in ([m.name, m.interval] if m.of_repeats == "mean" else [m.name])]


def _groups(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The runs that belong into one row, in the order of their first one; one table at a time."""
    places: dict[Hashable, list[int]] = {}
    for index, run in table.iterrows():
        places.setdefault(_key(cast(int, index), run), []).append(cast(int, index))
    for members in places.values():
        yield table.loc[members]


def _key(index: int, run: pd.Series) -> Hashable:
    unknown = any(_missing(run[name]) for name in MUST_BE_KNOWN) or (_missing(run["cluster"]) and _missing(run["gpu"]))
    stopped_midway = run["outcome"] != Outcome.COMPLETED.value and not _missing(run["tokens_per_second"])
    alone = index if stopped_midway or unknown else None
    names = _KEPT if run["plan"] else (*_KEPT, *_SAID)
    return (*(None if _missing(run[name]) else run[name] for name in names), run["plan"], alone)


def _combined(group: pd.DataFrame) -> dict[str, Any]:
    first = group.iloc[0]
    row: dict[str, Any] = {name: first[name] for name in _KEPT}
    row["name"] = first["source"] if _missing(first["run_id"]) else first["run_id"]
    row |= {"runs": len(group), "members": tuple(int(i) for i in group.index)}
    for metric in METRICS:
        row |= _figures(group[metric.name].dropna().tolist(), metric)
    steps = (group["warmup_steps"].fillna(0) + group["measured_steps"]).unique()
    row["steps"] = steps[0] if len(steps) == 1 else None
    reasons = [r for r in dict.fromkeys(group["outcome_reason"]) if not _missing(r)]
    row["outcome_reason"] = "; ".join(map(str, reasons)) or None
    return row


def _figures(values: list[float], metric: Metric) -> dict[str, Any]:
    if metric.of_repeats == "max":
        return {metric.name: max(values, default=None)}
    found = estimate(values)
    return {metric.name: found.mean, metric.interval: found.half_width}


def best(section: pd.DataFrame) -> dict[str, set[int]]:
    """Metric name -> index of the rows that are the best of `section`; empty where there is nothing to compare.

    Only completed rows count; what is equal in the digits shown is equally good. The loss counts only where all of them ran equally many steps.
    """
    done = section[section["outcome"] == Outcome.COMPLETED.value]
    marks: dict[str, set[int]] = {}
    for metric in METRICS:
        values = done[metric.name].dropna().astype(float)
        if metric is LOSS and (done["steps"].isna().any() or done["steps"].nunique() > 1):
            continue
        if len(values) > 1 and metric.better:
            top = metric.text(values.max() if metric.better == "high" else values.min())
            marks[metric.name] = {int(str(i)) for i, value in values.items() if metric.text(value) == top}
    return marks


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def count(value: object) -> int | None:
    """A whole number of the table, None where it is unknown."""
    return None if _missing(value) else int(cast(float, value))


def text(value: object) -> str | None:
    """A text of the table as it may be shown, None where it is unknown."""
    return None if _missing(value) else one_line(str(value))


def figure(value: object) -> float | None:
    """A figure of the table, None where it is unknown."""
    return None if _missing(value) else float(cast(float, value))


def _configurations(table: pd.DataFrame, runs: Sequence[ReportedRun]) -> list[str]:
    """What sets each run apart from the usual settings of its method: `sub_group_size=4e9`; mostly nothing.

    Usual is what most runs of the same task, model, cluster, method and precision have; where no setting has the
    majority, all of them are named.
    """
    settings = [run.configuration for run in runs]
    labels = [""] * len(runs)
    for members in _alike(table).values():
        known = [i for i in members if settings[i]]
        differing = _differing([settings[i] for i in known])
        of_run = {i: _label(settings[i], differing) for i in known}
        ranked = Counter(of_run.values()).most_common(2)
        usual = ranked[0][0] if len(ranked) > 1 and ranked[0][1] > ranked[1][1] else ""
        for i, label in of_run.items():
            labels[i] = "" if label == usual else label
    return labels


def _alike(table: pd.DataFrame) -> dict[Hashable, list[int]]:
    """The runs among which a method's name must mean one thing; their sizes may differ."""
    places: dict[Hashable, list[int]] = {}
    for i, run in table.iterrows():
        key = tuple(text(run[name]) for name in ("task", "model", "cluster", "method", "precision"))
        places.setdefault(key, []).append(cast(int, i))
    return places


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def _label(setting: Mapping[str, Any], differing: Sequence[str]) -> str:
    parts = [f"{name.rsplit('.', 1)[-1]}={_value(setting.get(name))}" for name in differing]
    more = len(parts) - _MOST_SETTINGS_SHOWN
    if more > 0:
        parts = [*parts[:_MOST_SETTINGS_SHOWN], f"and {more} more ({_fingerprint(setting, differing)[:4]})"]
    return ", ".join(parts)


def _fingerprint(setting: Mapping[str, Any], differing: Sequence[str]) -> str:
    """Letters that tell settings apart."""
    import hashlib

    text = repr([(name, setting.get(name)) for name in differing])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _value(value: object) -> str:
    return "unset" if value is None else f"{value:g}".replace("e+0", "e") if isinstance(value, float) else str(value)
