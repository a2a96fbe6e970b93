"""DeepSpeed's pipeline engine: the line that its first rank prints of each few steps, below any program that trains with it.

The time is the mean over the steps since the line before, of which all passes of the pipeline are part; samples are those of
the global batch. A program of somebody else may add losses by name, how many steps there are and when it will be over.
"""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

FORMAT = LineFormat(
    name="deepspeed-pipeline",
    hints=(b" iter time (s): ",),
    precedence=80,
    companion=True,
    stands_in=True,
    rules=(
        rule(
            Kind.STEP,
            r"\bsteps?: +<step>(?: +/ +<total_steps>)? loss: <loss> (?:\w{1,40}: [-+.\w]{1,30} ){0,8}?iter time \(s\): <step_time_s>"
            r" samples/sec: <samples_per_second>",
            literal=" iter time (s): ",
        ),
    ),
)
