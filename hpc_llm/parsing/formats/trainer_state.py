"""`trainer_state.json` of the Hugging Face Trainer: the whole history of a run, with step numbers.

The history goes on from a checkpoint as if nothing had been, and the time at its end is that of the last call alone. So the
steps in that time are known only where the Trainer counted others than those that were planned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hpc_llm.parsing import trainer_steps
from hpc_llm.parsing.registry import DocumentFormat
from hpc_llm.parsing.rows import TRAIN, Row, Step
from hpc_llm.parsing.trainer_rates import rates
from hpc_llm.records.run import Outcome
from hpc_llm.text.json_text import figures


def read(text: bytes) -> Iterator[tuple[Row, list[Step]]]:
    """The run; raises ValueError where the file is no trainer state."""
    state = figures(text)
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise ValueError("no log history")
    history = [entry for entry in state["log_history"] if isinstance(entry, dict)]
    yield _row(state, history), [_step(entry) for entry in history if "loss" in entry]


def _step(entry: dict[str, Any]) -> Step:
    step = entry.get("step")
    return Step(
        step=step if isinstance(step, int) else None,
        loss=as_number(entry.get("loss")),
        learning_rate=as_number(entry.get("learning_rate")),
        grad_norm=as_number(entry.get("grad_norm")),
    )


def as_number(value: object) -> float | None:
    """The number; transformers 5 may quote it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _last(history: list[dict[str, Any]], key: str) -> float | None:
    values = [as_number(entry[key]) for entry in history if key in entry]
    return values[-1] if values else None


def _summary(history: list[dict[str, Any]]) -> dict[str, float | None]:
    """The figures that the Trainer wrote last of all, when training had ended."""
    last: dict[str, Any] = next((entry for entry in reversed(history) if "train_runtime" in entry), {})
    return {name: as_number(value) for name, value in last.items()}


def _row(state: dict[str, Any], history: list[dict[str, Any]]) -> Row:
    losses, why = _losses(history)
    done, total = state.get("global_step"), state.get("max_steps")
    row = Row(
        format="hf-trainer",
        kind=TRAIN,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
    )
    row.eval_loss, row.elapsed_s = _last(history, "eval_loss"), _last(history, "train_runtime")
    # Its train_batch_size is no micro batch: under DataParallel it is that of all GPUs of a node, and the file does not tell.
    row.perplexity = _last(history, "perplexity") or _last(history, "eval_perplexity")
    if isinstance(done, int) and done > 0 and row.elapsed_s:
        steps = trainer_steps.of_a_summary(_summary(history), total)
        counted = 0 if steps is None else round(steps)
        if counted > done:
            steps, why = (
                None,
                f"train_steps_per_second and train_runtime make {counted} steps, and global_step is {done}",
            )
        row.measured_steps, row.warmup_steps = (steps, 0) if isinstance(steps, int) else (None, None)
        if not _is_paused(state, history, done):
            row.step_time_s_mean = None if steps is None else row.elapsed_s / steps
            row.tokens_per_second, row.tokens_per_second_per_gpu = _rates(state, history, row.elapsed_s)
    if row.elapsed_s is not None or (isinstance(done, int) and isinstance(total, int) and 0 < total <= done):
        row.outcome = Outcome.COMPLETED.value
        row.outcome_reason = f"figures that contradict each other are left empty: {why}" if why else None
    else:
        of_all = f" of {total}" if isinstance(total, int) else ""
        at = f" at step {done}{of_all}" if isinstance(done, int) else ""
        row.outcome, row.outcome_reason = Outcome.UNKNOWN.value, f"a checkpoint{at}"
    return row


def _losses(history: list[dict[str, Any]]) -> tuple[list[float | None], str | None]:
    """Those of the lines in their order; none, and why, where the steps are not in it or one has two: the Trainer adds a line a step."""
    lines = [entry for entry in history if "loss" in entry]
    steps = [entry.get("step") for entry in lines]
    known = [step for step in steps if isinstance(step, int) and not isinstance(step, bool)]
    if any(later <= one for one, later in itertools.pairwise(known)):
        return [], "the steps of log_history do not follow one another"
    return [as_number(entry["loss"]) for entry in lines], None


def _is_paused(state: dict[str, Any], history: list[dict[str, Any]], done: int) -> bool:
    """Whether the time of training holds evaluations or checkpoints."""
    every = as_number(state.get("save_steps"))
    return any("eval_loss" in entry or "eval_runtime" in entry for entry in history) or bool(
        every and done >= every > 0
    )


def _rates(state: dict[str, Any], history: list[dict[str, Any]], time_s: float) -> tuple[float | None, float | None]:
    """Tokens per second of all devices and of one: the summary prints one of the two, the tokens seen tell which."""
    rate = _last(history, "train_tokens_per_second")
    values: dict[str, Any] = {"trainer_rate": rate, "elapsed_s": time_s, "is_resumed": True, "is_partial": True}
    seen = as_number(state.get("num_input_tokens_seen")) or _last(history, "num_input_tokens_seen")
    if seen:
        values["tokens_seen"] = seen
    rates(values)
    return values.get("tokens_per_second"), values.get("tokens_per_second_per_gpu")


FORMAT = DocumentFormat(name="trainer-state", hints=((b'"log_history"',),), read=read)
