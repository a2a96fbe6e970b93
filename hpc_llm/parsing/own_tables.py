"""Tables of runs that hpc-llm wrote itself: what they tell of failures is of others, and no run of that log ended so."""

from __future__ import annotations

import re

from hpc_llm.parsing.rows import COLUMNS, STEP_COLUMNS

HEAD = 1 << 14
"""Bytes at the beginning in which a table shows."""
_NAMES = frozenset(name.encode() for name in (*COLUMNS, *STEP_COLUMNS, "run_ids", "runs"))
_LEAST = 3
"""Names of columns; fewer may stand in anything."""
_JSON_NAME = re.compile(rb'"(\w{1,80})":')


def is_own_table(first: bytes) -> bool:
    """Whether text that begins so is a table of `parse` or `report`: CSV, or rows in JSON.

    >>> is_own_table(b"run_id,outcome,loss_last\\na,FAILED,\\n"), is_own_table(b"step,loss\\n1,2.5\\n")
    (True, False)
    """
    begin = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin.startswith((b"{", b"[")):
        names = _JSON_NAME.findall(begin.partition(b"}")[0])
        return {b"run_id", b"source"} <= set(names) <= _NAMES
    names = begin.partition(b"\n")[0].strip().split(b",")
    known = sum(name in _NAMES for name in names)
    # A report has columns of its own beside those of a run.
    return known >= _LEAST and 2 * known > len(names) and bool({b"run_id", b"run_ids", b"outcome"} & set(names))
