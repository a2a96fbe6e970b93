"""Training logs of any known format to one row a run, or one row a step.

rows = parse_paths(["logs/", "slurm-123.out"])
write_rows(rows, "csv", sys.stdout)
"""

from __future__ import annotations

from hpc_llm.parse.output import OUTPUT_FORMATS, write_rows
from hpc_llm.parse.read import Reading, inputs, parse_paths, parse_steps, parse_stream, parse_stream_steps
from hpc_llm.parse.rows import COLUMNS, STEP_COLUMNS, UNKNOWN_FORMAT, Row, Step

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
    "write_rows",
]
