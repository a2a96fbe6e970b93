"""What all share that hold figures of one run to one another: when two agree, and how a contradiction is told. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

TOLERANCE = 1e-3
"""Share by which a figure may differ from what it follows from: rounded by hand, as tables have it."""
RATES = (
    "measured_steps", "step_time_s_mean", "step_time_s_p50", "step_time_s_p90", "step_times_s", "tokens_per_second",
    "tokens_per_second_per_gpu", "model_tflops_per_gpu", "mfu", "epoch_time_s", "prompt_tokens_per_second",
    "generated_tokens_per_second", "queries_per_second", "measured_window_s",
)  # fmt: skip
_MOST = 1 << 53

Contradiction = tuple[str, tuple[str, ...]]
"""A sentence, and the names of the figures that count as missing for it."""


def agrees(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=TOLERANCE)


def count_of(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
