"""LLaMA-Factory: `trainer_log.jsonl`, one JSON object a logged step.

`throughput` is the tokens of all ranks over the time since the start. Of a run that goes on from a checkpoint the tokens are those
since its very beginning, and the time is that of this call alone. Times are whole seconds since the start, so single steps have none:
their mean comes from the lines between which nothing was evaluated. The last line tells no loss: it is written once the model is saved, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing.clock import seconds
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule
from hpc_llm.parsing.trainer_steps import goes_on
from hpc_llm.text.json_text import figures

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
        record = figures(match[0])
    except ValueError:
        return None
    step, total = record.get("current_steps"), record.get("total_steps")
    if not isinstance(step, int) or ("eval_loss" in record and "loss" not in record):
        return None
    found: dict[str, Value] = {"step": step}
    if isinstance(total, int):
        found["total_steps"] = total
    for key, (column, factor) in _NUMBERS.items():
        if isinstance(record.get(key), (int, float)) and (factor == 1 or math.isfinite(record[key])):
            found[column] = round(record[key] * factor) if factor > 1 else record[key]
    elapsed = seconds(str(record.get("elapsed_time")))
    if elapsed is not None:
        found["elapsed_s"] = elapsed
    if elapsed is not None and "loss" in found:
        found["clock_s"], found["clock_step"], found["clock_rounding_s"] = elapsed, step, 1.0
        if isinstance(record.get("epoch"), (int, float)):
            found["clock_epoch"] = float(record["epoch"])
        tokens = record.get("total_tokens")
        if isinstance(tokens, int):
            found["clock_tokens"] = tokens
    return found


def _evaluation(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    try:
        record = figures(match[0])
    except ValueError:
        return None
    loss = record.get("eval_loss")
    return {"eval_loss": float(loss)} if isinstance(loss, (int, float)) and "loss" not in record else None


def _end(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The time of all: the last line may be of the step of the one above it."""
    found = _line(match)
    return {"ended_s": found["elapsed_s"]} if found and "elapsed_s" in found and "loss" not in found else None


def _finish(values: dict[str, Value]) -> None:
    """Rates and times; where something was evaluated, or training went on from a checkpoint, from what lies between lines."""
    if "ended_s" in values:
        values["elapsed_s"] = max(float(values["ended_s"]), float(values.get("elapsed_s", 0.0)))
    mean, timed = values.get("mean_tokens_per_second"), values.get("timed_tokens_per_second")
    resumed = goes_on(values)
    if not values.get("was_paused") and not resumed:
        timed = mean
    elif mean is not None and timed is None:
        what = (
            "it counts the tokens of an earlier call"
            if resumed
            else "it is over a time in which something was evaluated"
        )
        leave_empty(values, f"throughput: {what}, too")
    if timed is not None:
        values["tokens_per_second"] = timed
    if values.get("time_went_back"):
        leave_empty(values, "elapsed time: the clock was set back", "elapsed_s")
    if values.get("clock_disagrees"):
        leave_empty(values, "step time: an epoch has more steps in some lines than in others")
    time, steps = values.get("timed_step_time_s"), values.get("timed_steps")
    if time is not None and steps is not None:
        values["step_time_s_mean"], values["measured_steps"] = time, steps
        values["warmup_steps"] = values["steps_in_first_line"]


FORMAT = LineFormat(
    name="llama-factory",
    hints=(b'"current_steps": ',),
    precedence=35,
    one_loss=True,
    one_writer=True,
    averages=False,
    rules=(
        rule(Kind.STEP, r'\{"current_steps": [^{}\n]*\}', _line, literal='{"current_steps": '),
        rule(
            Kind.RUN,
            r'\{"current_steps": [^{}\n]*"eval_loss": [^{}\n]*\}',
            _evaluation,
            literal='"eval_loss": ',
            pauses=True,
        ),
        rule(
            Kind.RUN,
            r'\{"current_steps": [^{}\n]*"percentage": 100(?:\.0)?,[^{}\n]*\}',
            _end,
            literal='"percentage": 100',
        ),
    ),
    finish=_finish,
)
