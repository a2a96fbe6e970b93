"""nanoGPT: `iter 10: loss 3.2202, time 1389.25ms, mfu 10.73%`; the utilisation is -100% before it is known.

The time is that of the one step that is printed. Later forks print more between the loss and the time.
"""

from __future__ import annotations

import re

from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, rule

FORMAT = LineFormat(
    name="nanogpt",
    hints=(b"iter ", b": train loss "),
    confirm=re.compile(
        rb"\biter \d+: loss [\d.naif]+, [^\n]{0,60}?time [\d.]+ms|\bstep \d+: train loss \S+, val loss "
    ),
    precedence=60,
    rules=(
        rule(
            Kind.STEP,
            r"\biter <step>: loss <loss>, (?:[^\n]{0,60}? )??time <step_time_ms>ms(?:, mfu <mfu_pct>%)?",
            literal="iter ",
        ),
        rule(Kind.RUN, r"\bstep \d+: train loss \S+, val loss <eval_loss>(?=[,;\s]|$)", literal=": train loss "),
        rule(Kind.RUN, r"tokens per iteration(?: will be)?: <tokens_per_step>", literal="tokens per iteration"),
        rule(Kind.RUN, r"number of parameters: <num_parameters_millions>M", literal="number of parameters: "),
    ),
)
