"""Training logs of any known format to one row a run, or one row a step.

rows = parse_paths(["logs/", "slurm-123.out"])
write_rows(rows, "csv", sys.stdout)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hpc_llm.errors import notice
from hpc_llm.parsing.inputs import inputs, refuse_what_is_read
from hpc_llm.parsing.parallel import read_all, size_of
from hpc_llm.parsing.read import Reading, parse_steps, parse_stream, parse_stream_steps
from hpc_llm.parsing.rows import COLUMNS, STEP_COLUMNS, UNKNOWN_FORMAT, Row, Step
from hpc_llm.parsing.write import OUTPUT_FORMATS, write_rows

__all__ = [
    "COLUMNS",
    "OUTPUT_FORMATS",
    "STEP_COLUMNS",
    "UNKNOWN_FORMAT",
    "Reading",
    "Row",
    "Step",
    "inputs",
    "parse_paths",
    "parse_steps",
    "parse_stream",
    "parse_stream_steps",
    "refuse_what_is_read",
    "total_bytes",
    "write_rows",
]


def parse_paths(
    paths: Iterable[str | os.PathLike[str]],
    *,
    verbose: bool = False,
    jobs: int | None = None,
    on_reading: Callable[[Reading], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Row]:
    """One row a run of everything under `paths`, in order.

    An input without a known format is a row of format `unknown` that says why, but for JSON in a folder that is searched: most of
    that is settings and no run, and `verbose` tells how many there are. `verbose` counts the lines that look like
    a metric and are not parsed. `jobs` processes share the work (default: one a core). `on_reading` gets each input's
    `Reading`; `on_progress` gets the number of bytes read since it was called last, out of `total_bytes(paths)`. Raises
    RequestError for a path that is not there or cannot be read.
    """
    given = list(paths)
    named, left_out = set(map(str, map(Path, given))), 0
    for readings, size in read_all(list(inputs(given)), verbose=verbose, jobs=jobs):
        if on_progress is not None:
            on_progress(size)
        for reading in readings:
            if on_reading is not None:
                on_reading(reading)
            if reading.is_unknown_json and reading.source not in named:
                left_out += 1
                continue
            if reading.is_unknown_json:
                notice(f"{reading.source}: nothing was recognised in it: {reading.rows[0].outcome_reason}")
            yield from reading.rows
    if verbose and left_out:
        said = f"{left_out} files of JSON are" if left_out > 1 else "1 file of JSON is"
        notice(f"{said} left out, for no format is known in them")


def total_bytes(paths: Iterable[str | os.PathLike[str]]) -> int:
    """Bytes of all files under `paths`, as `parse_paths` counts its progress."""
    return sum(map(size_of, inputs(paths)))
