"""nanoGPT: `iter 10: loss 3.2202, time 1389.25ms, mfu 10.73%`; the utilisation is -100% before it is known.

The time is that of the one step that is printed, the evaluation before it included. Later forks print more between the loss
and the time, or a unit of their own behind the loss, which is then none of ours. The utilisation is of an A100's peak in bf16, whatever the GPU is.
"""

from __future__ import annotations

import re

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule


def _finish(values: dict[str, Value]) -> None:
    """The utilisation is a running mean, so the last one stands for the run."""
    share = values.get("share_of_a100")
    if not isinstance(share, float) or share <= 0:
        return
    if "A100" in str(values.get("gpu")):
        values["mfu"] = share
    else:
        leave_empty(values, "mfu: nanoGPT's is of an A100's peak, and the log does not say that the GPU is one")


FORMAT = LineFormat(
    name="nanogpt",
    hints=(b"iter ", b": train loss "),
    confirm=re.compile(
        rb"\biter \d+: loss [\d.naif]+(?: \w{1,10})?, [^\n]{0,60}?time [\d.]+ ?ms|\bstep \d+: train loss \S+(?: \w{1,10})?, val loss "
    ),
    precedence=60,
    single=True,
    one_loss=True,
    rules=(
        rule(Kind.SETUP, r"\bstep 0: train loss ", literal="step 0: train loss "),
        rule(Kind.SETUP, r"^Overriding config with \S", literal="Overriding config with "),
        rule(Kind.RUN, r"^(?:Overriding: )?eval_only = (?P<evaluates>True)\b", literal="eval_only = True"),
        rule(
            Kind.STEP,
            r"\biter <step>: loss (?:<loss>|[\d.]+ [a-zA-Z]\w{0,9}), (?:[^\n]{0,60}? )??time <step_time_ms>[ ]?ms(?:, mfu <share_of_a100_pct>%)?",
            literal="iter ",
        ),
        rule(
            Kind.RUN,
            r"\bstep (?:(?P<evaluates_before_training>0)|(?P<trains>\d+)): train loss \S+(?: [a-zA-Z]\w{0,9})?, val loss "
            r"(?:<eval_loss>(?![ \t]+[a-zA-Z])(?=[,;\s\\\"']|\.(?:[\s\\\"']|$)|$)|\S)",
            literal=": train loss ",
            pauses=True,
        ),
        rule(Kind.SETUP, r"tokens per iteration(?: will be)?: <tokens_per_step>", literal="tokens per iteration"),
        rule(
            Kind.SETUP,
            r"^(?:Overriding: )?max_iters = <total_steps>(?=[ \t]*(?:#[^\n]*)?$)",
            literal="max_iters = ",
        ),
        rule(Kind.SETUP, r"number of parameters: <num_parameters_millions>M", literal="number of parameters: "),
    ),
    finish=_finish,
)
