"""The comparison cut into the parts of the report: one for each model and batch shape."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hpc_llm.parsing.rows import EVAL, INFER
from hpc_llm.reporting.comparison import SHAPE, count, text
from hpc_llm.reporting.table import Cells, Table

ALONE = "Runs without a counterpart"
_OTHER_KINDS = {INFER: "inference", EVAL: "evaluation"}


@dataclass(frozen=True)
class Section:
    """Rows that do the same work per GPU and step. In the last section, `is_mixed`, each row stands for itself."""

    id: str
    title: str
    rows: Table
    """In the columns of the comparison, under its numbers."""
    is_mixed: bool = False


def sections(compared: Table) -> list[Section]:
    """The sections in the order of the comparison; shapes of one row, or without a model, come together at the end.

    What was measured in training, in evaluation and in inference never stands in one section.
    """
    places: dict[Hashable, list[int]] = {}
    for index, row in compared.items():
        key = tuple(text(row[name]) for name in SHAPE)
        places.setdefault(key if text(row["model"]) else None, []).append(index)
    lonely = places.pop(None, [])
    found: list[Section] = []
    for members in places.values():
        if len(members) == 1 and len(compared) > 1:
            lonely += members
        else:
            rows = compared.only(members)
            found.append(Section(f"s{len(found) + 1}", shape_title(rows.first), rows))
    return [*found, *_mixed(compared.only(sorted(lonely)), len(found))]


def _mixed(lonely: Table, before: int) -> list[Section]:
    """The rows that have no counterpart, those of each kind together; `before` sections stand above them."""
    kinds = [_kind_of(row) for row in lonely]
    title = ALONE if before else "Runs"
    made: list[Section] = []
    for kind in dict.fromkeys(kinds):
        rows = lonely.only(number for number, row in lonely.items() if _kind_of(row) == kind)
        made.append(Section(f"s{before + len(made) + 1}", f"{title}: {kind}" if kind else title, rows, is_mixed=True))
    return made


def _kind_of(row: Cells) -> str:
    """What was measured, where that is not training."""
    return _OTHER_KINDS.get(str(row["kind"]), "")


def shape_title(row: Cells) -> str:
    """`llama2-7b · micro batch 1 · sequence length 350`, as far as it is known."""
    micro, steps, length = (count(row[n]) for n in SHAPE[3:6])
    parts = [text(row["model"]) or "model unknown"]
    if text(row["task"]) not in (None, "pretrain"):
        parts.append(str(row["task"]))
    elif str(row["kind"]) in _OTHER_KINDS:
        parts.append(_OTHER_KINDS[str(row["kind"])])
    if micro is not None:
        parts.append(f"micro batch {micro}")
    if steps is not None and steps != 1:
        parts.append(f"{steps} accumulation steps")
    if length is not None:
        parts.append(f"sequence length {length}")
    if text(row["smoke"]) is not None:
        parts.append("smoke")
    if text(row["search"]) is not None:
        parts.append(str(row["search"]))
    return " · ".join(parts)


def shape(row: Cells) -> str:
    """The shape as far as it is known, empty where nothing is."""
    return "" if all(text(row[name]) is None for name in SHAPE[1:]) else shape_title(row)


def identity_columns(section: Section) -> list[str]:
    """The columns that say what a row is; in a mixed section those of which anything is known."""
    if not section.is_mixed:
        return ["Method", "Cluster", "GPUs"]
    rows = section.rows
    known = {
        "Run": True,
        "Model and shape": any(map(shape, rows)),
        "Method": bool(rows.known("method")),
        "Cluster": bool(rows.known("cluster")),
        "GPUs": bool(rows.known("gpu") or rows.known("world_size")),
    }
    return [name for name, is_known in known.items() if is_known]
