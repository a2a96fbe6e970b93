"""The schedules of the learning rate that DeepSpeed has, and what each must be told. Standard library only.

Read from DeepSpeed 0.19.8 (runtime/lr_schedules.py); a test asks the installed one. It takes a misspelt parameter, or one too few,
only when the job starts, and ends there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.records.metrics import is_figure

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
_EXAMPLE = {"total_num_steps": "as many as --steps"}
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
_RATE_OF = {
    "LRRangeTest": "lr_range_test_min_lr",
    "OneCycle": "cycle_max_lr",
    "WarmupLR": "warmup_max_lr",
    "WarmupDecayLR": "warmup_max_lr",
}
"""Name of a schedule -> the parameter that is its peak rate, of a range test its first. DeepSpeed trains with it whatever the optimizer
says, and where it is left out with 0.001 (WarmupLR of newer releases with the optimizer's). WarmupCosineLR has none: it scales the
optimizer's."""
_RAMP, _HALF_CYCLE = 1000, 2000
"""DeepSpeed's defaults of warmup_num_steps and cycle_first_step_size."""


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
    is_number = is_figure(value)
    if key in _STEPS and not (is_number and isinstance(value, int) and value > 0) and value is not None:
        raise RequestError(f"{where}: scheduler.params.{key} is {value!r}: it must be a whole number of at least 1.")
    if key in _RATES and isinstance(value, list) and len(value) == 1 and not key.endswith("ratio"):
        value, is_number = value[0], is_figure(value[0])  # one for each group of parameters, of which there is one
    if key in _RATES and not (is_number and value >= 0) and value is not None:
        raise RequestError(f"{where}: scheduler.params.{key} is {value!r}: it must be a number of at least 0.")
    if key == "warmup_type" and value not in _KINDS:
        raise RequestError(f"{where}: scheduler.params.warmup_type is {value!r}. Valid: {', '.join(_KINDS)}.")


def own_rate(config: Mapping[str, Any], lr: float | None) -> tuple[float, str] | None:
    """The rate that a config's schedule says itself, and where; None where it takes the optimizer's, `lr`.

    Raises RequestError where the two differ.
    """
    block = config.get("scheduler") or {}
    key = _RATE_OF.get(block.get("type", ""), "")
    said = (block.get("params") or {}).get(key)
    if said is None:
        return None
    rate, place = float(said[0] if isinstance(said, list) else said), f"deepspeed.scheduler.params.{key}"
    if lr is not None and lr != rate:
        raise RequestError(
            f"optimizer.lr is {lr:g}, and {place} is {rate:g}, which DeepSpeed would train with. Say one of the two: without {key} "
            "the schedule takes optimizer.lr."
        )
    return rate, place


def place_of_rate(config: Mapping[str, Any]) -> str:
    """Where in a whole config the peak rate stands."""
    found = own_rate(config, None)
    return "optimizer.params.lr" if found is None else found[1].removeprefix("deepspeed.")


def with_rate(block: Mapping[str, Any], lr: float) -> dict[str, Any]:
    """The `scheduler` block with the optimizer's rate where it says none."""
    key, params = _RATE_OF.get(block.get("type", "")), block.get("params") or {}
    return dict(block) if key is None or params.get(key) is not None else {**block, "params": {**params, key: lr}}


def in_place_of_auto(path: str) -> str | None:
    """What a config says in place of `auto` where Hugging Face's Trainer would have put a value of its own."""
    key = path.rpartition(".")[2]
    if key in _RATE_OF.values():
        return "Leave it out, optimizer.lr is taken"
    return f"Give a whole number, {_EXAMPLE[key]}" if key in _EXAMPLE else None


def schedule_notices(config: Mapping[str, Any], steps: int) -> list[str]:
    """What is to be told of a schedule that is longer or shorter than a run of so many steps."""
    block = config.get("scheduler") or {}
    name, params = block.get("type"), block.get("params") or {}
    if name == "OneCycle":
        key, default = "cycle_first_step_size", _HALF_CYCLE
        ramp = params.get(key) or default
        total, rest = ramp + (params.get("cycle_second_step_size") or ramp), "cycle_min_lr"
        decays = bool(params.get("decay_step_size"))
    elif name in SCHEDULES and name != "LRRangeTest":
        key, default, total, decays = "warmup_num_steps", _RAMP, params.get("total_num_steps"), False
        ramp = params.get(key) or default
        rest = "0" if name == "WarmupDecayLR" else f"{params.get('cos_min_ratio', 1e-4):g} of its peak"
    else:
        return []
    said = f"{key} is {ramp}{'' if params.get(key) else ' by default'}"
    if ramp > steps:
        return [f"deepspeed.scheduler: {said}, and the run has {steps} steps: the learning rate never reaches its peak"]
    if total is None or total == steps:
        return []
    length = f"total_num_steps is {total}" if "total_num_steps" in params else f"its cycle has {total} steps"
    if ramp > total:
        return [f"deepspeed.scheduler: {said}, and {length}: the learning rate falls to {rest} as soon as it has risen"]
    if total > steps:
        return [f"deepspeed.scheduler: {length}, and the run has {steps}: it ends before the learning rate has fallen"]
    if decays:
        return []
    return [
        f"deepspeed.scheduler: {length}, and the run has {steps}: the learning rate of the last {steps - total} is {rest}"
    ]
