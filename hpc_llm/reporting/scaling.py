"""Speed-up and efficiency over the number of GPUs, from the completed rows of the comparison."""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

from hpc_llm.records.run import Outcome
from hpc_llm.reporting.comparison import count, figure, text
from hpc_llm.reporting.table import Cells, Table

COLUMNS = (
    "kind", "cluster", "gpu", "method", "configuration", "precision", "model", "sequence_length", "batch", "world_size",
    "tokens_per_second", "base_world_size", "speed_up", "efficiency", "row",
)  # fmt: skip
_SAME = ("task", "model", "sequence_length", "cluster", "gpu", "method", "configuration", "precision", "search")
_BATCHES = {
    "weak": ("micro_batch_size", "gradient_accumulation_steps"),
    "strong": ("global_batch_size",),
}
"""What stays the same while the number of GPUs grows: the work of each GPU, or the work of all together."""


def scaling(compared: Table) -> Table:
    """One row for each number of GPUs in a series of at least two, in the columns COLUMNS.

    `speed_up` is the throughput over that of the smallest number of GPUs in the series, `base_world_size`; `efficiency`
    is the speed-up over how many times more GPUs there are. `row` is the number in `compared`.
    """
    done = compared.where(
        lambda row: row["outcome"] == Outcome.COMPLETED.value and row["tokens_per_second"] is not None
    )
    rows = [row for kind in _BATCHES for series in _series(done, kind) for row in _rows(kind, series)]
    return Table(COLUMNS, rows)


def _series(done: Table, kind: str) -> list[Table]:
    places: dict[Hashable, list[int]] = {}
    for index, row in done.items():
        values = [row[name] for name in ("kind", *_SAME, *_BATCHES[kind])]
        if any(count(row[name]) is None for name in (*_BATCHES[kind], "world_size", "sequence_length")):
            continue  # without the batch nobody can say what stayed the same
        if text(row["method"]) is None or text(row["model"]) is None:
            continue
        places.setdefault(tuple(text(v) for v in values), []).append(index)
    groups = [sorted(indices, key=lambda index: done[index]["world_size"]) for indices in places.values()]
    return [done.only(g) for g in groups if len({done[index]["world_size"] for index in g}) == len(g) > 1]


def _rows(kind: str, series: Table) -> list[Cells]:
    base = series.first
    fewest, slowest = cast(int, count(base["world_size"])), cast(float, figure(base["tokens_per_second"]))
    rows = []
    for index, row in series.items():
        ranks, rate = cast(int, count(row["world_size"])), cast(float, figure(row["tokens_per_second"]))
        rows.append(
            {name: row[name] for name in _SAME}
            | {
                "kind": kind,
                "batch": count(row[_BATCHES[kind][0]]),
                "world_size": ranks,
                "tokens_per_second": rate,
                "base_world_size": fewest,
                "speed_up": rate / slowest,
                "efficiency": rate / slowest * fewest / ranks,
                "row": index,
            }
        )
    return rows
