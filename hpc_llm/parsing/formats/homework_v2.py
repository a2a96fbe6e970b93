"""The DeepSpeed homework, second version: 30 warm-up steps, then the recorded ones, and a block of results.

Memory is torch bytes divided by 1024**3, although it says GB. The peak is reset when the warm-up ends.
"""

from __future__ import annotations

import re

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, rule


def _finish(values: dict[str, Value]) -> None:
    """The recorded steps are those after the warm-up."""
    last, warmup = values.get("last_step"), values.get("warmup_steps")
    if isinstance(last, int) and isinstance(warmup, int) and last > warmup:
        values["measured_steps"] = last - warmup


FORMAT = LineFormat(
    name="homework-v2",
    hints=(b"[Warm-up] Step ", b"[Recording] Step ", b"Final Benchmark Results (Excluding "),
    confirm=re.compile(rb"\] Step \d+: Loss \S+ \| \S+ tokens/s|Final Benchmark Results \(Excluding \d+ warm-up steps"),
    precedence=19,
    averages=False,
    rules=(
        rule(Kind.STEP, r"\] Step <step>: Loss <loss> \| <tokens_per_second> tokens/s", literal="] Step "),
        rule(Kind.RUN, r"Warm-up finished at step <warmup_steps>,", literal="Warm-up finished at step "),
        rule(Kind.RUN, r"\(Excluding <warmup_steps> warm-up steps\)", literal=" warm-up steps)"),
        rule(Kind.RUN, r"Avg Global Tokens/s: +<tokens_per_second>", literal="Avg Global Tokens/s: "),
        rule(Kind.END, r"Total Recording Time: +<elapsed_s> s", literal="Total Recording Time: "),
        rule(Kind.RUN, r"Peak GPU Mem \(GB\): +<peak_allocated_gib>", literal="Peak GPU Mem (GB): "),
    ),
    finish=_finish,
)
