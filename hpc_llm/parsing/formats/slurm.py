"""Slurm's own lines in a job's output; how the job ended is read by `hpc_llm.causes`."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

FORMAT = LineFormat(
    name="slurm",
    hints=(b"slurmstepd: ", b"srun: error: ", b"*** JOB ", b"*** STEP ", b" CANCELLED AT "),
    precedence=200,
    kind=None,
    rules=(
        rule(Kind.RUN, r"slurmstepd: error: ", literal="slurmstepd: error: "),
        rule(Kind.RUN, r"srun: error: ", literal="srun: error: "),
        rule(Kind.RUN, r"\*\*\* (?:JOB|STEP|%s) [^\n]* CANCELLED AT ", literal=" CANCELLED AT "),
    ),
)
