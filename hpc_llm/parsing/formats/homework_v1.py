"""The DeepSpeed homework, first version: a line a step with that step's tokens per second, and three lines at the end.

Its memory figures are torch bytes divided by 1024**3, although they say GB: the program prints
`torch.cuda.memory_allocated() / 1024**3`. The average is over all steps; nothing is left out as warm-up. hpc-llm prints the same lines
and says above them how many steps it measured.

The oldest logs count the tokens of one rank (`Tokens/s`, no `Global`) and number the steps from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import EACH_RANK, Kind, Value, rule


def _place(values: Mapping[str, Value], known: Mapping[str, Value], has_steps: bool) -> Mapping[str, Value]:
    """The oldest program prints its lines on each rank."""
    ranks = known.get("launched_ranks", known.get("world_size", 1))
    is_of_a_rank = "tokens_per_second_per_gpu" in values and isinstance(ranks, (int, float)) and ranks > 1
    return {**values, EACH_RANK: True} if is_of_a_rank else values


def _finish(values: dict[str, Value]) -> None:
    """Where the steps are counted, the time is theirs and not that of the whole training."""
    steps, time = values.get("measured_steps"), values.get("elapsed_s")
    if isinstance(steps, int) and isinstance(time, float):
        del values["elapsed_s"]
        if steps and time:
            values["step_time_s_mean"] = time / steps


FORMAT = LineFormat(
    name="homework-v1",
    hints=(b"] Loss: ", b"Avg Global Tokens/s: "),
    confirm=re.compile(rb"\[Step \d+/\d+\] Loss: \S+ \| (?:Global )?Tokens/s: |Avg Global Tokens/s: \d"),
    precedence=20,
    averages=False,
    one_loss=True,
    rules=(
        rule(
            Kind.STEP,
            r"\[Step <step>/<total_steps>\] Loss: <loss>"
            r" \| (?:Global Tokens/s: <tokens_per_second>|Tokens/s: <tokens_per_second_per_gpu>)"
            r" \| GPU Mem \(GB\): (?:<allocated_gib>|n/a)(?: \| Peak Mem: (?:<peak_allocated_gib>|n/a))?",
            literal="[Step ",
        ),
        rule(
            Kind.RUN,
            r"^Measured <measured_steps> steps after <warmup_steps> of warm-up\.$",
            literal=" of warm-up.",
        ),
        rule(Kind.END, r"Training done in <elapsed_s> seconds\.", literal="Training done in "),
        rule(Kind.RUN, r"Avg Global Tokens/s: +<tokens_per_second>", literal="Avg Global Tokens/s: "),
        rule(Kind.RUN, r"Avg Tokens/s: +<tokens_per_second_per_gpu>", literal="Avg Tokens/s: "),
        rule(Kind.RUN, r"Peak GPU Mem \(GB\): +<peak_allocated_gib>", literal="Peak GPU Mem (GB): "),
    ),
    defaults={"warmup_steps": 0},
    place=_place,
    finish=_finish,
)
