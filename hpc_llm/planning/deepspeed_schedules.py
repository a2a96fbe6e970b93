"""The schedules of the learning rate that DeepSpeed has, and what each must be told. Standard library only.

Read from DeepSpeed 0.19.8 (runtime/lr_schedules.py); a test asks the installed one. It takes a misspelt parameter, or one too few,
only when the job starts, and ends there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hpc_llm.errors import RequestError, unknown_name

_WARMUP = "warmup_num_steps warmup_type last_batch_iteration"
SCHEDULES: dict[str, tuple[str, str]] = {
    "LRRangeTest": (
        "",
        "lr_range_test_min_lr lr_range_test_step_size lr_range_test_step_rate lr_range_test_staircase last_batch_iteration",
    ),
    "OneCycle": (
        "cycle_min_lr cycle_max_lr",
        "decay_lr_rate cycle_first_step_size cycle_second_step_size cycle_first_stair_count cycle_second_stair_count decay_step_size "
        "cycle_momentum cycle_min_mom cycle_max_mom decay_mom_rate last_batch_iteration",
    ),
    "WarmupLR": ("", f"warmup_min_lr warmup_max_lr {_WARMUP}"),
    "WarmupDecayLR": ("total_num_steps", f"warmup_min_lr warmup_max_lr {_WARMUP}"),
    "WarmupCosineLR": ("total_num_steps", f"warmup_min_ratio cos_min_ratio {_WARMUP}"),
}
"""Name of a schedule -> the parameters that it needs, and those that it may have."""
_EXAMPLE = {"total_num_steps": "as many as --steps and --warmup-steps together"}
_STEPS = (
    "total_num_steps",
    "warmup_num_steps",
    "lr_range_test_step_size",
    "cycle_first_step_size",
    "cycle_second_step_size",
)
_RATES = (
    "lr_range_test_min_lr",
    "cycle_min_lr",
    "cycle_max_lr",
    "warmup_min_lr",
    "warmup_max_lr",
    "warmup_min_ratio",
    "cos_min_ratio",
)
_KINDS = ("log", "linear")


def check_schedule(block: Any, where: str) -> None:
    """Raise a RequestError for a `scheduler` block that DeepSpeed could not make a schedule of."""
    if not block:
        return
    name, params = block.get("type"), block.get("params", {})
    if name not in SCHEDULES:
        raise RequestError(f"{where}: scheduler.type is {name!r}. Valid: {', '.join(SCHEDULES)}.")
    needed, others = (names.split() for names in SCHEDULES[name])
    if "params" not in block and not needed:
        raise RequestError(
            f"{where}: scheduler.params is missing, which {name} needs, though it may hold nothing but {others[0]}."
        )
    if not isinstance(params, Mapping):
        raise RequestError(f"{where}: scheduler.params is {params!r}: it must be keys of its own.")
    for key, value in params.items():
        if key not in (*needed, *others):
            raise RequestError(
                unknown_name("parameter", str(key), (*needed, *others), where=f"{where}, scheduler.params of {name}")
            )
        _check_value(key, value, where)
    for key in needed:
        if key not in params:
            meant = f", {_EXAMPLE[key]}" if key in _EXAMPLE else ""
            raise RequestError(f"{where}: scheduler.params.{key} is missing, which {name} needs{meant}.")


def _check_value(key: str, value: Any, where: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if key in _STEPS and not (is_number and isinstance(value, int) and value > 0) and value is not None:
        raise RequestError(f"{where}: scheduler.params.{key} is {value!r}: it must be a whole number of at least 1.")
    if key in _RATES and not (is_number and value >= 0) and not isinstance(value, list) and value is not None:
        raise RequestError(f"{where}: scheduler.params.{key} is {value!r}: it must be a number of at least 0.")
    if key == "warmup_type" and value not in _KINDS:
        raise RequestError(f"{where}: scheduler.params.warmup_type is {value!r}. Valid: {', '.join(_KINDS)}.")
