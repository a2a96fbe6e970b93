"""Figures that cannot be, whoever printed them: a clock that was set back makes a training of -100 s. They are left empty."""

from __future__ import annotations

import math
from dataclasses import asdict

from hpc_llm.parsing.rows import Row
from hpc_llm.records.possible import impossible


def leave_out_impossible(row: Row) -> str | None:
    """Empty what cannot be; the sentence about it, None where all can be.

    >>> row = Row(run_id="r", elapsed_s=-100.0, perplexity=4.0)
    >>> leave_out_impossible(row), row.elapsed_s, row.perplexity
    ('no possible figure: elapsed_s -100.0', None, 4.0)
    """
    said = []
    found = {name: value for name, value in asdict(row).items() if not isinstance(value, float) or math.isfinite(value)}
    for name in impossible(found):  # that a loss is no number is a finding of its own
        said.append(f"{name} {getattr(row, name)}")
        setattr(row, name, None)
    return f"no possible figure: {', '.join(said)}" if said else None
