"""What a comparison with a baseline could not say: figures that are gone on one side, rows that have no counterpart any more.

A figure that is gone got neither better nor worse, and a verdict that passes over it says more than anybody knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hpc_llm.parsing.rows import measures_nothing
from hpc_llm.reporting.baseline import Change, Then, is_completed, key_of, says_its_settings
from hpc_llm.reporting.comparison import text
from hpc_llm.reporting.files import gpus, method
from hpc_llm.reporting.table import Cells, Table


def not_compared(compared: Table, baseline: Table, found: Collection[Change], invalid: Table) -> list[str]:
    """A line for each row and what of it could not be compared.

    `found` are the changes of `compared` against `baseline`, `invalid` the runs that are no rows of it.
    """
    lines = [f"{_named(compared[one.row])}: {'; '.join(one.unknown)}" for one in found if one.unknown]
    several = list(_of_other_settings(compared, baseline, found))
    lines += [
        f"{_named(row)}: several rows, now or in the baseline, differ only in settings that are not those of this one"
        for row in several
    ]
    told = {key_of(row) for row in several}
    lines += [
        f"{_named(row)}: in the baseline alone"
        for row in _vanished(baseline, found, invalid)
        if key_of(row) not in told
    ]
    for table, where in ((compared, ""), (baseline, "in the baseline, ")):
        silent = (row for row in table if is_completed(row) and not says_its_settings(row))
        lines += [f"{_named(row)}: {where}too little is known of its settings" for row in silent if _measures(row)]
    return lines


def _of_other_settings(compared: Table, baseline: Table, found: Collection[Change]) -> Iterator[Cells]:
    """Completed rows that the baseline has only with settings of which nobody knows whether they are theirs."""
    keys = Then(baseline.where(says_its_settings), compared).keys
    taken = {one.row for one in found if one.same_setting}
    for number, row in compared.where(says_its_settings).items():
        if is_completed(row) and number not in taken and key_of(row) in keys:
            yield row


def _vanished(baseline: Table, found: Collection[Change], invalid: Table) -> Iterator[Cells]:
    """Completed rows of the baseline with which nothing was compared, and of which no run is INVALID now."""
    taken = {id(row) for one in found if one.same_setting for row in one.counterparts}
    now_invalid = {key_of(row) for row in invalid}
    for row in baseline.where(says_its_settings):
        if is_completed(row) and id(row) not in taken and key_of(row) not in now_invalid and _measures(row):
            yield row


def _measures(row: Cells) -> bool:
    return not measures_nothing(row["task"])


def _named(row: Cells) -> str:
    where = text(row["cluster"]) or "an unknown cluster"
    return ", ".join(filter(None, (text(row["model"]), f"{method(row) or 'an unknown method'} on {where}", gpus(row))))
