"""What follows of a step from what its line prints, and from what the log says of the whole run."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from hpc_llm.parsing.rules import Value

_NEEDED = frozenset(("samples_per_second", "tokens_per_second_per_gpu", "step_time_s"))


def complete(step: dict[str, Value], facts: Mapping[str, Value], packed: bool) -> Set[str]:
    """Add to a step what follows; gives the names of the columns whose means are taken.

    Tokens per second that follow from another column have no mean of their own: they follow from the mean of that one.
    """
    batch, rate = facts.get("global_batch_size"), step.get("samples_per_second")
    if "step_time_s" not in step and isinstance(batch, int) and isinstance(rate, float) and rate > 0:
        step["step_time_s"] = batch / rate
    measured = frozenset(step)
    ranks, per_gpu = facts.get("world_size"), step.get("tokens_per_second_per_gpu")
    if "tokens_per_second" not in step and isinstance(ranks, int) and isinstance(per_gpu, float):
        step["tokens_per_second"] = per_gpu * ranks
    if "tokens_per_second" not in step and isinstance(step.get("step_time_s"), float):
        tokens = tokens_per_step({**facts, **step}, packed)
        if tokens and step["step_time_s"]:
            step["tokens_per_second"] = tokens / float(step["step_time_s"])
    return measured


def has_more(step: Mapping[str, Value]) -> bool:
    """Whether anything may follow from what the step prints."""
    return not step.keys().isdisjoint(_NEEDED)


def with_times(columns: Mapping[str, list[float]], facts: Mapping[str, Value]) -> Mapping[str, list[float]]:
    """The same for the times of many steps that print their samples per second alone."""
    batch, rates = facts.get("global_batch_size"), columns.get("samples_per_second")
    if "step_time_s" in columns or not rates or not isinstance(batch, int):
        return columns
    return {**columns, "step_time_s": [batch / rate if rate > 0 else 0.0 for rate in rates]}


UNEQUAL = "unequal_lengths"
"""Set where samples are of different lengths, though the program's are full sequences by default."""


def tokens_per_step(facts: Mapping[str, Any], packed: bool) -> int | None:
    """Tokens of one step over all ranks, where the log says so; `packed` where every sample is a full sequence, if no setting says another."""
    batch, length = facts.get("global_batch_size"), facts.get("sequence_length")
    if packed and not facts.get(UNEQUAL) and isinstance(batch, int) and isinstance(length, int):
        return batch * length
    printed = facts.get("tokens_per_step")
    return printed if isinstance(printed, int) else None


@dataclass
class Skips:
    """Programs print how many steps were skipped: so far, or since the line before. One step tells which it was."""

    number: int = 0
    """Of the step before."""
    so_far: int | None = 0
    """How many were skipped up to it, if the log says."""

    def see(self, step: dict[str, Value]) -> None:
        """Say of the next step whether it was skipped."""
        number, so_far, in_line = (step.get(name) for name in ("step", "skipped_total", "skipped_in_line"))
        if not isinstance(number, int):
            return
        if number == self.number + 1 and isinstance(so_far, int) and self.so_far is not None:
            step.setdefault("skipped", so_far > self.so_far)
        elif number == self.number + 1 and isinstance(in_line, int):
            step.setdefault("skipped", in_line > 0)
        self.number, self.so_far = number, so_far if isinstance(so_far, int) else None
