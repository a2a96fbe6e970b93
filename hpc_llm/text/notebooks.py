"""Jupyter notebooks: in which order their cells ran, and which errors in them are exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def as_run(cells: Sequence[dict[str, Any]]) -> list[int]:
    """The places of the cells in the order in which they ran, by their execution counts; a cell without one ran behind the cell above it.

    Where one count stands there twice, several kernels counted, and nobody knows which of them came first: the cells stay as they stand.

    >>> as_run([{"execution_count": 8}, {"execution_count": None}, {"execution_count": 3}])
    [2, 0, 1]
    >>> as_run([{"execution_count": 2}, {"execution_count": 1}, {"execution_count": 2}])
    [0, 1, 2]
    """
    ran: list[int] = []
    counts = []
    for cell in cells:
        count = cell.get("execution_count")
        if isinstance(count, int):
            counts.append(count)
        ran.append(counts[-1] if counts else 0)
    if len(set(counts)) < len(counts):
        return list(range(len(cells)))
    return sorted(range(len(cells)), key=ran.__getitem__)


def is_raised(output: dict[str, Any]) -> bool:
    """Whether an output of the kind `error` is an exception of the program: editors write what befell the kernel in the same form, without
    a name or with that of JavaScript's errors, which has no traceback.

    >>> is_raised({"ename": "KeyError", "traceback": []}), is_raised({"ename": "", "traceback": ["usage: jupyter"]})
    (True, False)
    """
    name = output.get("ename")
    return bool(name) and (
        name != "Error" or any("Traceback (most recent" in str(line) for line in output.get("traceback") or ())
    )
