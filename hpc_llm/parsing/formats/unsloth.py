"""Unsloth: the Hugging Face Trainer's output below a banner of its own, which says what the Trainer then leaves out.

Its notebooks print the peak that torch reserved, divided by 1024**3, although they say GB.
"""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

FORMAT = LineFormat(
    name="unsloth",
    hints=(b"==((====))==",),
    precedence=39,
    averages=False,
    rules=(
        rule(Kind.START, r"==\(\(====\)\)==  (?P<trains>Unsloth) - ", literal="==((====))==  Unsloth - "),
        rule(
            Kind.SETUP,
            r"==\(\(====\)\)==  Unsloth - [^\n|]{1,80}\| Num GPUs = <world_size>$",
            literal=" | Num GPUs = ",
        ),
        rule(Kind.RUN, r"Data Parallel GPUs = <world_size> \|", literal="Data Parallel GPUs = "),
        rule(Kind.RUN, r"Num examples = <num_examples> \| Num Epochs = ", literal=" | Num Epochs = "),
        rule(Kind.RUN, r" \| Total steps = <total_steps>$", literal=" | Total steps = "),
        rule(
            Kind.RUN,
            r"Batch size per device = <micro_batch_size> \| Gradient [Aa]ccumulation steps = <gradient_accumulation_steps>$",
            literal="Batch size per device = ",
        ),
        rule(
            Kind.RUN,
            r"Total batch size(?: \(\d+ x \d+ x \d+\))? = <global_batch_size>(?= \||$)",
            literal="Total batch size",
        ),
        rule(
            Kind.RUN,
            r"    GPU: (?:NVIDIA |Tesla )?(?P<gpu>[A-Z][\w -]{1,40}?)\. Max memory: ",
            literal=". Max memory: ",
        ),
        rule(Kind.RUN, r"Peak reserved memory = <peak_reserved_gib> GB\.$", literal="Peak reserved memory = "),
    ),
)
