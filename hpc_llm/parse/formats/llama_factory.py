"""LLaMA-Factory: `trainer_log.jsonl`, one JSON object a logged step.

`throughput` is the mean since the start, over all ranks. Times are whole seconds since the start, so the mean step time
comes from the first and the last line and single steps have none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from hpc_llm.parse.formats.hf_trainer import seconds
from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, Value, rule

_NUMBERS = {
    "loss": ("loss", 1),
    "lr": ("learning_rate", 1),
    "learning_rate": ("learning_rate", 1),
    "eval_loss": ("eval_loss", 1),
    "throughput": ("mean_tokens_per_second", 1),
    "vram_allocated": ("peak_allocated_bytes", 2**30),
    "vram_reserved": ("peak_reserved_bytes", 2**30),
}


def _line(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    try:
        record = json.loads(match[0])
    except ValueError:
        return None
    step, total = record.get("current_steps"), record.get("total_steps")
    if not isinstance(step, int):
        return None
    found: dict[str, Value] = {"step": step}
    if isinstance(total, int):
        found["total_steps"] = total
    for key, (column, factor) in _NUMBERS.items():
        if isinstance(record.get(key), (int, float)):
            found[column] = round(record[key] * factor) if factor > 1 else record[key]
    elapsed = seconds(str(record.get("elapsed_time")))
    if elapsed is not None:
        found["elapsed_s"] = found["first_elapsed_s"] = elapsed
    return found


def _finish(values: dict[str, Value]) -> None:
    if "mean_tokens_per_second" in values:
        values["tokens_per_second"] = values["mean_tokens_per_second"]
    first, last, before, after = (values.get(n) for n in ("first_step", "last_step", "first_elapsed_s", "elapsed_s"))
    if not (
        isinstance(first, int) and isinstance(last, int) and isinstance(before, float) and isinstance(after, float)
    ):
        return
    if last > first and after > before:
        values["step_time_s_mean"] = (after - before) / (last - first)
        values["measured_steps"], values["warmup_steps"] = last - first, values["steps_in_first_line"]


FORMAT = LineFormat(
    name="llama-factory",
    hints=(b'"current_steps": ',),
    precedence=35,
    averages=False,
    rules=(rule(Kind.STEP, r'\{"current_steps": [^{}\n]*\}', _line, literal='{"current_steps": '),),
    finish=_finish,
)
