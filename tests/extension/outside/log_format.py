"""A log format of another package: `[toytrainer] batch 3/20 cost=2.5 took 125ms`."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

FORMAT = LineFormat(
    name="toytrainer",
    hints=(b"[toytrainer] ",),
    rules=(
        rule(
            Kind.STEP,
            r"\[toytrainer\] batch <step>/<total_steps> cost=<loss> took <step_time_ms>ms",
            literal="[toytrainer] batch ",
        ),
        rule(Kind.RUN, r"\[toytrainer\] net of <num_parameters> weights", literal="[toytrainer] net of "),
        rule(Kind.END, r"\[toytrainer\] done", literal="[toytrainer] done"),
    ),
)
