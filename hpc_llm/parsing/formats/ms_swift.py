"""ms-swift: `logging.jsonl`, one JSON object a logged step.

`train_speed(s/it)` is the time since the start over the steps of this call, so single steps have none: their mean comes from the lines
between which nothing was evaluated. Older releases divide by the steps of all calls; then the time is that of `elapsed_time`, of whole
seconds. `memory(GiB)` is the sum over all GPUs of a process where one process drives several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule
from hpc_llm.text.json_text import figures

_COLUMNS = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "eval_loss": "eval_loss",
    "train_runtime": "elapsed_s",
}
_MEMORY = "memory(GiB)"
_ELAPSED = re.compile(r"(?:(\d{1,6})d )?(?:(\d{1,2})h )?(?:(\d{1,2})m )?(\d{1,2})s")
_OF_A_CLOCK_S, _OF_A_SPEED_S = 1.0, 1e-6
"""How much both may be off, the second a step."""


def _record(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The figures of a line."""
    try:
        record = figures(match[0])
    except ValueError:
        return None
    step, _, total = str(record["global_step/max_steps"]).partition("/")
    found: dict[str, Value] = {"step": int(step), "total_steps": int(total)}
    for key, column in _COLUMNS.items():
        if isinstance(record.get(key), (int, float)):
            found[column] = float(record[key])
    if _MEMORY in record:
        found["prints_memory"] = 1
    return found | _clock(int(step), record.get("elapsed_time"), record.get("train_speed(s/it)"))


def _clock(step: int, elapsed: object, speed: object) -> dict[str, Value]:
    """The time since the start of the call."""
    printed = _ELAPSED.fullmatch(str(elapsed))
    if printed is None:
        return {}
    days, hours, minutes, rest = (float(part or 0) for part in printed.groups())
    time, rounding = ((days * 24 + hours) * 60 + minutes) * 60 + rest, _OF_A_CLOCK_S
    if isinstance(speed, (int, float)) and math.isfinite(speed) and abs(step * speed - time) <= _OF_A_CLOCK_S:
        time, rounding = step * float(speed), step * _OF_A_SPEED_S
    return {"clock_step": step, "clock_s": time, "clock_rounding_s": rounding}


def _result(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """What is said of the whole run, without a step."""
    found = _record(match)
    return None if found is None else {name: found[name] for name in ("eval_loss", "elapsed_s") if name in found}


def _finish(values: dict[str, Value]) -> None:
    if values.get("prints_memory"):
        leave_empty(values, f"{_MEMORY}: the log does not say of how many GPUs it is the sum")
    time, steps = values.get("timed_step_time_s"), values.get("timed_steps")
    if time is not None and steps is not None:
        values["step_time_s_mean"], values["measured_steps"] = time, steps
        values["warmup_steps"] = values["steps_in_first_line"]


_STEP_OF_ALL = r'[^{}\n]*"global_step/max_steps": "\d{1,9}/\d{1,9}"[^{}\n]*\}'

FORMAT = LineFormat(
    name="ms-swift",
    hints=(b'"global_step/max_steps": "',),
    precedence=35,
    one_loss=True,
    one_writer=True,
    averages=False,
    rules=(
        rule(Kind.STEP, r'^\{"loss": ' + _STEP_OF_ALL, _record, literal='{"loss": '),
        rule(Kind.RUN, r'^\{"eval_' + _STEP_OF_ALL, _result, literal='{"eval_', pauses=True),
        rule(Kind.END, r'^\{"train_runtime": ' + _STEP_OF_ALL, _result, literal='{"train_runtime": '),
    ),
    finish=_finish,
)
