"""What the lines of a steps.jsonl say of the figures that its run's result holds, too.

Only where both are surely of the same steps: those of the last attempt in a file whose last line is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_llm.records import metrics
from hpc_llm.records.agreement import ANSWERS, done_before, tokens_of_a_step, trains, warm_up_of
from hpc_llm.records.answering import COUNTS, FIRST_TIMES
from hpc_llm.records.comparing import count_of, is_time
from hpc_llm.records.files import json_object
from hpc_llm.records.possible import figure_of, is_possible
from hpc_llm.records.relations import LOGGED, LOGGED_TIMES
from hpc_llm.runs.progress import last_lines

_READ_BYTES = 64 << 10
"""Some 200 steps: of longer files the end. `status` looks at each run of a folder, on a file system that may be slow."""
_READ_BYTES_OF_A_PART = 4 << 20
"""Of a run that ended early, of which there are few: no plan says which steps it made, so the whole file is to show it."""


def logged_figures(path: Path, plan: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The figures by their names in `relations`, with those of the result that they can be held to.

    An attempt that has not come to the last planned step, behind another one in the same file, may not be the one of the result.
    """
    ended_early = result.get("outcome") not in (None, "COMPLETED")
    rows, has_more = _last_attempt(path, _READ_BYTES_OF_A_PART if ended_early else _READ_BYTES)
    planned = plan.get("steps")
    is_ended = bool(rows) and rows[-1]["step"] == planned
    if not rows or (has_more and not is_ended):
        return {}
    done, warm = done_before(result), warm_up_of(plan, result)
    is_unbroken = rows[-1]["step"] - rows[0]["step"] == len(rows) - 1
    is_begun = not has_more and done is not None and rows[0]["step"] == done + 1
    found: dict[str, Any] = {}
    losses = [loss for row in rows if (loss := figure_of(row, "loss")) is not None]
    # A rank that is stopped between a step and its line has one step more than the file.
    is_ended = is_ended or (ended_early and is_begun and _has_all(result, rows))
    if is_ended and losses:
        found["loss_last"] = losses[-1]
    if is_begun and losses:
        found["loss_first"] = losses[0]
    tokens = [row.get("trained_tokens") for row in rows]
    if is_begun and is_ended and is_unbroken and all(is_possible("trained_tokens", one) for one in tokens):
        found["trained_tokens"] = sum(tokens)
    if is_unbroken and len(rows) > 1:  # of a single one nobody knows whether each n-th step was logged
        found["steps"] = rows[-1]["step"]
    if done is not None and warm is not None:
        found |= _measured(plan, rows, done + warm)
    measured = _measured_lines(rows)
    if is_begun and is_unbroken and len(rows) > 1 and measured is not None and ended_early:
        found["most_measured_steps"] = measured + 1
    if is_begun and is_ended and is_unbroken and done == 0:
        found |= _answered(rows, warm or 0) if plan.get("task") == ANSWERS else {}
    return {f"{LOGGED}{name}": value for name, value in found.items()}


def evaluated_figures(path: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """What the last line of the evaluations' file says, of a run that completed, and which was the best where all are there."""
    lines = last_lines(path, _READ_BYTES) if result.get("outcome") == "COMPLETED" else []
    rows = [row for line in lines[:-1] if (row := json_object(line)) is not None]
    if len(lines) < 2 or lines[-1] or not rows:
        return {}
    found = {name: rows[-1].get(name) for name in ("eval_loss", "perplexity")}
    if len(rows) == result.get("evaluations") and not result.get("resumed"):
        known = [row for row in rows if figure_of(row, "eval_loss") is not None]
        best = min(known, key=lambda row: float(row["eval_loss"]), default={})
        found |= {"best_step": best.get("step"), "best_eval_loss": best.get("eval_loss")}
    return {f"{LOGGED}{name}": value for name, value in found.items()}


def _has_all(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a result has the times of as many steps as the lines are."""
    times = result.get("step_times_s")
    return isinstance(times, list) and len(times) == _measured_lines(rows)


def _measured_lines(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """How many lines are of measured steps; None where one does not say whether it is of the warm-up."""
    marks = [row.get("warmup") for row in rows]
    return marks.count(False) if all(isinstance(mark, bool) for mark in marks) else None


def _answered(rows: Sequence[Mapping[str, Any]], warm: int) -> dict[str, Any]:
    """What the batches of the only rank had, behind the warm-up."""
    measured = rows[warm:]
    found: dict[str, Any] = {}
    for name, of_line in (("total_queries", "queries"), *((name, name) for name in COUNTS[1:])):
        counts = [count_of(row, of_line) for row in measured]
        if counts and None not in counts:
            found[name] = sum(filter(None, counts))
    firsts = [(row.get("time_to_first_token_s"), count_of(row, "queries") or 0) for row in measured]
    if firsts and all(is_time(seconds) for seconds, _ in firsts):
        found[FIRST_TIMES.removeprefix(LOGGED)] = [seconds for seconds, queries in firsts for _ in range(queries)]
    return found


def _measured(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], before: int) -> dict[str, Any]:
    """What they say of the steps behind the first `before`."""
    measured = [row for row in rows if row["step"] > before]
    times = {row["step"] - before - 1: seconds for row in measured if (seconds := figure_of(row, "step_time_s"))}
    peaks = [peak for row in measured if (peak := figure_of(row, "peak_allocated_bytes")) is not None]
    found: dict[str, Any] = {LOGGED_TIMES.removeprefix(LOGGED): times}
    if peaks:
        found["peak_allocated_bytes"] = max(peaks)
    planned = plan.get("steps")
    if isinstance(planned, int) and times and len(times) == planned - before and _is_of_one_rank(plan):
        mean, tokens = metrics.mean(list(times.values())), tokens_of_a_step(plan)
        found["step_time_s_mean"] = mean
        for percent in (50, 90):
            found[f"step_time_s_p{percent}"] = metrics.percentile(list(times.values()), percent)
        if mean and tokens and trains(plan):
            found["tokens_per_second"] = tokens / mean
    return found


def _is_of_one_rank(plan: Mapping[str, Any]) -> bool:
    """Whether a result tells of the steps of the rank that wrote the lines: of answers it tells of those of all ranks."""
    return plan.get("task") != ANSWERS or plan.get("world_size") == 1


def _last_attempt(path: Path, most: int) -> tuple[list[dict[str, Any]], bool]:
    """The lines of it, and whether others stand before them; none where the last line is not whole, for then more may be missing."""
    lines = last_lines(path, most)
    if len(lines) < 2 or lines[-1]:
        return [], False
    rows: list[dict[str, Any]] = []
    has_more = False
    for line in lines[:-1]:
        row = json_object(line)
        if row is None or not is_possible("step", row.get("step")):
            has_more = has_more or not rows  # the file was cut there, or is damaged
            continue
        if rows and row["step"] <= rows[-1]["step"]:
            rows, has_more = [], True
        rows.append(row)
    return rows, has_more
