"""Rows of runs to the rows of the comparison table: repeats together, everything else apart.

Runs are repeats when their plans are equal but for what cannot change a measurement (`hpc_llm.reporting.repeats`). The log of
another program has no plan: it is a repeat of another log of that program where all that tells runs apart is known and everything they say of their settings is equal. Means are over completed runs; a run that ended otherwise keeps a row of its own
with what it measured until then, and is never averaged or marked as the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

from hpc_llm.parsing import COLUMNS, UNKNOWN_FORMAT
from hpc_llm.parsing.rows import TRAIN
from hpc_llm.records.run import Outcome
from hpc_llm.reporting.collect import RAN, ReportedRun
from hpc_llm.reporting.labels import numbered, short_paths, shown_setting
from hpc_llm.reporting.metric import METRICS, OF_EQUAL_STEPS, Metric
from hpc_llm.reporting.statistics import estimate
from hpc_llm.reporting.table import Cells, Table, number_of
from hpc_llm.reporting.together import beside_others, unsteady
from hpc_llm.text.shown import one_line

SHAPE = (
    "kind",
    "task",
    "model",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "sequence_length",
    "smoke",
    "search",
)
"""Runs that agree in these do the same work per GPU and step, and share a table; the tries of searches, of few steps each, have their own."""
_SEARCHED = "search for the micro batch"
"""What the column `search` says of a try."""
SETTING = ("cluster", "gpu", "nodes", "world_size", "method", "precision")
"""What is compared within a table."""
MUST_BE_KNOWN = ("model", "method", "world_size", "micro_batch_size", "sequence_length")
"""Without these, and the cluster or the GPU, two runs cannot be called repeats."""

_CONSEQUENCES = frozenset(("lr_ramp_steps", "warmup_steps", "global_batch_size", "gradient_accumulation_steps"))
"""Settings that follow from others unless somebody gives them."""
_NUMBERS = frozenset(
    """num_parameters nodes gpus_per_node world_size micro_batch_size gradient_accumulation_steps global_batch_size
    sequence_length warmup_steps measured_steps step_time_s_mean step_time_s_p50 step_time_s_p90 tokens_per_second
    tokens_per_second_per_gpu model_tflops_per_gpu mfu peak_allocated_bytes peak_reserved_bytes peak_device_bytes
    peak_host_bytes loss_first loss_last eval_loss perplexity elapsed_s
    prompt_tokens_per_second generated_tokens_per_second queries_per_second time_to_first_token_s_p50
    time_per_output_token_s_mean latency_s_mean latency_s_p50 latency_s_p90 latency_s_p99
    predicted_step_time_s predicted_peak_allocated_bytes tensor_parallel
    total_queries total_time_s prompt_tokens generated_tokens train_samples epochs learning_rate""".split()
)
_OF_TRAINING = ("optimizer.lr", "optimizer.weight_decay", "data", "packing", "too_long", "train_samples")
"""Settings that mean the same whatever the method, so that all rows of a table are compared in them."""
OF_LOSSES = ("steps", "lr_schedule")
"""Settings that decide how far a loss comes: named in a row that has not those of most rows of its table."""
_KEPT = (*SHAPE, *SETTING, "global_batch_size", "configuration", "outcome")
_SAID = ("format", "num_parameters", "gpus_per_node", "warmup_steps", "measured_steps")
"""What else logs without a plan say of their settings."""
_MOST_SETTINGS_SHOWN = 3
NOT_OVER = "NOT_OVER"
"""Stands for the outcome of a run that has none yet; it has not failed."""


def run_table(runs: Sequence[ReportedRun]) -> Table:
    """One row a run with the columns of `parse`, numbers as numbers, and `configuration`, what sets it apart.

    Their numbers are the positions in `runs`.
    """
    table = as_numbers(Table(COLUMNS, [run.row.to_dict() for run in runs]))
    table.add("outcome", map(_outcome, runs))
    table.add("beside", beside_others(runs))
    table.add("unsteady", unsteady(runs))
    table.add("search", (_SEARCHED if run.of_search is not None else None for run in runs))
    table.add("configuration", _configurations(table, runs))
    table.add("data", (repr(run.plan.get("data") or None) if run.plan else None for run in runs))
    settings = [run.settings for run in runs]
    table.add("plan", (_fingerprint(one, sorted(one)) if one else "" for one in settings))
    _tell_plans_apart(table, runs)
    _tell_owners_apart(table, runs)
    return table


def _tell_owners_apart(table: Table, runs: Sequence[ReportedRun]) -> None:
    """Name whose runs are others', where not all are of one user: nobody's figures go into a mean with those of others."""
    if len({run.owner for run in runs}) > 1:
        for i, run in enumerate(runs):
            label = (table[i]["configuration"], f"of {run.owner}" if run.owner else "")
            table[i]["configuration"] = ", ".join(filter(None, label))


def _tell_plans_apart(table: Table, runs: Sequence[ReportedRun]) -> None:
    """Name what differs between runs whose plans do, and that nothing else in the table tells apart."""
    places: dict[Hashable, list[int]] = {}
    for i, run in table.items():
        if run["plan"]:
            places.setdefault(tuple(text(run[n]) for n in _KEPT if n != "outcome"), []).append(i)
    for members in places.values():
        labels = _deviations([runs[i].settings for i in members])
        for i, label in zip(members, labels, strict=True):
            table[i]["configuration"] = ", ".join(filter(None, (table[i]["configuration"], label)))


def _outcome(run: ReportedRun) -> str:
    if run.row.outcome is None and run.is_ours:
        return NOT_OVER
    outcome = run.row.outcome or ""
    return outcome if outcome in Outcome.__members__ else Outcome.UNKNOWN.value


def as_numbers(table: Table) -> Table:
    """`table` with its figures as floats; what is no finite number is missing."""
    for name in _NUMBERS & set(table.columns):
        table.add(name, map(number_of, table.column(name)))
    return table


def no_numbers(table: Table) -> list[tuple[int, str, str]]:
    """Row, column and text of each cell in which a figure belongs and that is no number; NaN and infinity are how some write none."""
    return [
        (number, name, str(row[name]))
        for number, row in table.items()
        for name in table.columns
        if name in _NUMBERS and row[name] is not None and not _is_a_number(row[name])
    ]


def _is_a_number(value: object) -> bool:
    return number_of(value) is not None or str(value).strip().lower().lstrip("+-") in (
        "nan",
        "inf",
        "infinity",
        "none",
        "null",
        "n/a",
    )


def compare(table: Table) -> Table:
    """One row for each setting and outcome from `run_table`'s rows; INVALID ones and unread inputs have no row.

    Besides the columns of SHAPE, SETTING and METRICS, the latter with their intervals: `configuration`, `outcome`,
    `name`, that of its first run, `runs`, how many it stands for, `members`, their numbers in `table`, `known_in_part`, the metrics
    that only some of them have, `run_ids`, their names, and `outcome_reason`.
    """
    usable = table.where(lambda row: row["outcome"] != Outcome.INVALID.value and row["format"] != UNKNOWN_FORMAT)
    columns = [
        *_KEPT,
        "data",
        "name",
        "runs",
        *_figure_columns(),
        "steps",
        "outcome_reason",
        "members",
        "known_in_part",
        "run_ids",
    ]
    compared = Table(columns, [_combined(group) for group in _groups(usable)])
    order = ["kind", "model", "task", "sequence_length", "micro_batch_size", "gradient_accumulation_steps"]
    keys = [*order, "cluster", "gpu", "world_size", "method", "configuration", "outcome", "search"]
    return compared.sorted_by(keys)


def _figure_columns() -> list[str]:
    return [name for m in METRICS for name in ([m.name, m.interval] if m.of_repeats == "mean" else [m.name])]


def _groups(table: Table) -> Iterator[Table]:
    """The runs that belong into one row, in the order of their first one; one table at a time."""
    places: dict[Hashable, list[int]] = {}
    for index, run in table.items():
        places.setdefault(_key(index, run), []).append(index)
    for members in places.values():
        yield table.only(members)


def _key(index: int, run: Cells) -> Hashable:
    unknown = any(_missing(run[name]) for name in MUST_BE_KNOWN) or (_missing(run["cluster"]) and _missing(run["gpu"]))
    stopped_midway = run["outcome"] != Outcome.COMPLETED.value and not _missing(run["tokens_per_second"])
    alone = index if stopped_midway or unknown else None
    names = _KEPT if run["plan"] else (*_KEPT, *_SAID)
    return (*(run[name] for name in names), run["plan"], alone)


def _combined(group: Table) -> Cells:
    first = group.first
    row: Cells = {name: first[name] for name in _KEPT}
    row["data"] = first["data"]
    row["is_marred"] = any((*group.column("beside"), *group.column("unsteady")))
    row["name"] = first["source"] if first["run_id"] is None else first["run_id"]
    row["run_ids"] = " ".join(run["run_id"] or run["source"] or "" for run in group)
    row |= {"runs": len(group), "members": tuple(group.rows)}
    for metric in METRICS:
        row |= _figures(group.known(metric.name), metric)
    row["known_in_part"] = tuple(m.name for m in METRICS if 0 < len(group.known(m.name)) < len(group))
    steps = set(map(_steps, group))
    row["steps"] = steps.pop() if len(steps) == 1 else None
    reasons = dict.fromkeys(group.known("outcome_reason"))
    row["outcome_reason"] = "; ".join(map(str, reasons)) or None
    return row


def _steps(run: Cells) -> float | None:
    """Warm-up included; None where the log does not say."""
    measured: float | None = run["measured_steps"]
    return None if measured is None else measured + (run["warmup_steps"] or 0)


def _figures(values: list[float], metric: Metric) -> dict[str, Any]:
    if metric.of_repeats == "max":
        return {metric.name: max(values, default=None)}
    found = estimate(values)
    return {metric.name: found.mean, metric.interval: found.half_width, metric.ends: found.ends}


def best(section: Table) -> dict[str, set[int]]:
    """Metric name -> numbers of the rows that are the best of `section`; empty where there is nothing to compare.

    Only completed rows count whose runs had their machine for themselves and steady steps, among those that were fed the same data; what is equal in
    the digits shown is equally good, and of repeats none is best whose interval reaches into that of the next. Losses count only
    where all of them ran equally many steps.
    """
    done = section.where(lambda row: row["outcome"] == Outcome.COMPLETED.value and not row["is_marred"])
    marks: dict[str, set[int]] = {}
    for data in dict.fromkeys(done.column("data")):
        rows = done.only(number for number, row in done.items() if row["data"] == data)
        steps = set(rows.column("steps"))
        for metric in METRICS:
            if metric.better and not (metric in OF_EQUAL_STEPS and (None in steps or len(steps) > 1)):
                marks.setdefault(metric.name, set()).update(_best_of(rows, metric))
    return {name: rows for name, rows in marks.items() if rows}


def _best_of(rows: Table, metric: Metric) -> set[int]:
    known = {number: row[metric.name] for number, row in rows.items() if row[metric.name] is not None}
    if len(known) < 2:
        return set()
    top = (max if metric.better == "high" else min)(known.values())
    found = {number for number, value in known.items() if metric.text(value) == metric.text(top)}
    others = known.keys() - found
    is_clear = all(
        abs(known[one] - known[other]) > _half(rows[one], metric) + _half(rows[other], metric)
        for one in found
        for other in others
    )
    return found if is_clear else set()


def _half(row: Cells, metric: Metric) -> float:
    """Half the width of the interval, 0 where one run tells none."""
    return row.get(metric.interval) or 0.0 if metric.of_repeats == "mean" else 0.0


def has_several_data(section: Table) -> bool:
    """Whether not all completed rows were fed the same, so that each of them has a best of its own."""
    done = section.where(lambda row: row["outcome"] == Outcome.COMPLETED.value)
    return len(set(done.column("data"))) > 1


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


def _configurations(table: Table, runs: Sequence[ReportedRun]) -> list[str]:
    """What sets each run apart from the usual settings of its method: `sub_group_size=4e9`; mostly nothing.

    Usual is, setting by setting, what most runs of the same task, model, cluster, method and precision have; where no value
    has the majority, each that has one is named. A setting of the training is named in all rows of a table where one has it named,
    and else where it is not that of most of them: a table compares methods.
    """
    # What follows from others is named beside them, where plans are told apart.
    settings = [{n: v for n, v in run.configuration.items() if not _follows(n)} for run in runs]
    of_losses = [{n: v for n, v in run.settings.items() if n in OF_LOSSES} for run in runs]
    alike = [[i for i in members if settings[i]] for members in _alike(table)]
    names: list[set[str]] = [set() for _ in runs]
    for members in alike:
        for i, apart in zip(members, _apart([settings[i] for i in members]), strict=True):
            names[i].update(apart)
    for members in _of_tables(table):
        _name_in_all(members, settings, names)
        known = [i for i in members if settings[i]]
        for i, differing in zip(known, _apart([of_losses[i] for i in known]), strict=True):
            names[i].update(differing)
    settings = [{**one, **more} for one, more in zip(settings, of_losses, strict=True)]
    labels = [""] * len(runs)
    for members in alike:
        named = [[n for n in settings[i] if n in names[i]] + sorted(names[i] - settings[i].keys()) for i in members]
        for i, label in zip(members, _labels([settings[i] for i in members], named), strict=True):
            labels[i] = label
    return labels


def _name_in_all(members: Sequence[int], settings: Sequence[Mapping[str, Any]], names: Sequence[set[str]]) -> None:
    """Name the settings of the training in which the rows of one table differ, or which one of them has named."""
    known = [i for i in members if settings[i]]
    shared = {name for i in known for name in names[i] if name in _OF_TRAINING}
    apart = _apart([{name: settings[i].get(name) for name in _OF_TRAINING} for i in known])
    for i, differing in zip(known, apart, strict=True):
        names[i].update(shared, differing)


def _deviations(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each of these has other than most, setting by setting; different ones that read alike are numbered."""
    return _labels(settings, _apart(settings))


def _apart(settings: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The names of what each of these has other than most."""
    differing = _differing(settings)
    usual = {name: _usual([repr(one.get(name)) for one in settings if _is_known(one, name)]) for name in differing}
    return [[n for n in differing if _is_known(one, n) and repr(one.get(n)) != usual[n]] for one in settings]


def _labels(settings: Sequence[Mapping[str, Any]], apart: Sequence[Sequence[str]]) -> list[str]:
    """These settings in words; different ones that read alike are numbered."""
    short = short_paths({name for names in apart for name in names})
    labels = [_label(one, sorted(names, key=_follows), short) for one, names in zip(settings, apart, strict=True)]
    exact = [repr([(name, one.get(name)) for name in names]) for one, names in zip(settings, apart, strict=True)]
    alike: dict[str, list[str]] = {}
    for label, one in zip(labels, exact, strict=True):
        members = alike.setdefault(label, [])
        members += [one] if one not in members else []
    return [
        label if len(alike[label]) == 1 else numbered(label, alike[label].index(one) + 1)
        for label, one in zip(labels, exact, strict=True)
    ]


def _is_known(setting: Mapping[str, Any], name: str) -> bool:
    """Whether a run says it: of software that a run did not come to tell of nobody knows that it is another."""
    return not name.startswith(RAN) or setting.get(name) is not None


def _usual(values: Sequence[str]) -> str | None:
    """What more of them are than anything else; else that they have none, which needs no name beside others; None where no value is."""
    ranked = Counter(values).most_common(2)
    is_usual = len(ranked) == 1 or ranked[0][1] > ranked[1][1]
    return ranked[0][0] if is_usual else none if (none := repr(None)) in values else None


def _follows(name: str) -> bool:
    """Whether a setting mostly follows from others, which are then named first."""
    return name.rsplit(".", 1)[-1] in _CONSEQUENCES


def _alike(table: Table) -> list[list[int]]:
    """The runs among which a method's name must mean one thing; their sizes may differ."""
    return _by(table, ("task", "model", "cluster", "method", "precision", "search"))


def _of_tables(table: Table) -> list[list[int]]:
    """The trainings that share a table of the report."""
    return _by(table.where(lambda run: run["kind"] == TRAIN), SHAPE)


def _by(table: Table, names: Sequence[str]) -> list[list[int]]:
    """The numbers of the rows that agree in these columns."""
    places: dict[Hashable, list[int]] = {}
    for i, run in table.items():
        places.setdefault(tuple(text(run[name]) for name in names), []).append(i)
    return list(places.values())


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in settings if _is_known(one, name)}) > 1]


def _label(setting: Mapping[str, Any], differing: Sequence[str], short: Mapping[str, str]) -> str:
    parts = [shown_setting(short[name], setting.get(name)) for name in differing]
    more = len(parts) - _MOST_SETTINGS_SHOWN
    if more > 0:
        parts = [*parts[:_MOST_SETTINGS_SHOWN], f"and {more} more ({_fingerprint(setting, differing)[:4]})"]
    return ", ".join(parts)


def _fingerprint(setting: Mapping[str, Any], differing: Sequence[str]) -> str:
    """Letters that tell settings apart."""
    import hashlib

    text = repr([(name, setting.get(name)) for name in differing])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
