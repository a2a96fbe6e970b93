"""Whose tokens per second the Hugging Face Trainer prints: those of one process, or those of all.

The summary counts the batches of one process, which drives one GPU, or with torch.nn.DataParallel all of the node.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpc_llm.parsing.rules import Value, leave_empty

SHARES = "ranks_share_samples"
"""Set where the command or the arguments split layers or sequences among ranks."""
DATA_PARALLEL = "is_data_parallel"
"""Set where one process drives all GPUs with torch.nn.DataParallel."""
ONE_PROCESS = "gpus_of_the_process"
"""Set to their number where the only process has several."""


def _is_near(one: float, other: float) -> bool:
    """Whether both are the same rate, printed with three digits or more."""
    return abs(one - other) <= 0.02 * other


def _figure(values: Mapping[str, Value], *names: str) -> float | None:
    """The first of these that is known and positive."""
    known = (values.get(name) for name in names)
    return next((float(v) for v in known if isinstance(v, (int, float)) and v > 0), None)


def _devices(values: Mapping[str, Value]) -> float | None:
    """How many devices hold different samples."""
    total, micro = _figure(values, "global_batch_size"), _figure(values, "micro_batch_size")
    if total is None or micro is None:
        return _figure(values, "world_size")
    return total / micro / (_figure(values, "gradient_accumulation_steps") or 1.0)


def rates(values: dict[str, Value]) -> None:
    """Tokens per second, in the column that the log proves them to belong to."""
    printed = "trainer_rate" in values
    rate = _figure(values, "trainer_rate") if printed else _figure(values, "line_rate")
    if rate is not None and values.get(SHARES):
        leave_empty(values, "train_tokens_per_second: several ranks share a sample, and it counts those of a process")
        return
    resumed, partial = bool(values.get("is_resumed")), printed and bool(values.get("is_partial"))
    whole = _figure(values, "timed_tokens_per_second" if resumed else "mean_tokens_per_second")
    if values.get("was_paused"):
        if rate is not None or whole is not None:
            leave_empty(values, "tokens/s: they are over a time in which the Trainer also evaluated or saved")
        return
    if whole is not None:
        values.setdefault("tokens_per_second", whole)
    if rate is None or "tokens_per_second_per_gpu" in values:
        return
    tokens, time = _figure(values, "tokens_seen", "tokens_so_far"), _figure(values, "elapsed_s", "so_far_s")
    seen = tokens / time if tokens and time and not resumed else whole
    devices = _devices(values)
    gpus = _figure(values, ONE_PROCESS) or devices
    if (devices == 1 or DATA_PARALLEL in values or ONE_PROCESS in values) and not partial and not resumed:
        values.setdefault("tokens_per_second", rate)
        if gpus:
            values["tokens_per_second_per_gpu"] = rate / gpus
    elif seen is not None and _is_near(rate, seen):
        values.setdefault("tokens_per_second", rate)
    elif (seen is None and printed and not partial) or (
        seen is not None and devices and _is_near(rate * devices, seen)
    ):
        values["tokens_per_second_per_gpu"] = rate
    else:
        leave_empty(values, "train_tokens_per_second: nothing says whether it is one device's or that of all")
