"""What any log may say about the job around the program: GPU, job id, start."""

from __future__ import annotations

import re

from hpc_llm.parse.rules import Kind, Rule, rule

CELL = b"\n\x1dnext cell\n"
"""Stands between the outputs of a notebook's cells: what follows is another run."""

START = re.compile(re.escape(CELL.strip()))

END_OF_JOB = b"CANCELLED AT "
"""Is in every message by which Slurm ends a job or a step: steps after it are those of another run."""

JOB_OVER = re.compile(rb"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT [^\n]*")

RULES: tuple[Rule, ...] = (
    # nvidia-smi's table; the vendor's prefix differs from card to card.
    rule(
        Kind.RUN,
        r"\|  +\d+  (?:NVIDIA |Tesla )?(?P<gpu>[A-Z][\w -]{2,40}?)(?: {2,}|\.\.\.) *(?:On|Off|N/A)  *\|",
        literal="Bus-Id",
    ),
    rule(Kind.RUN, r"\*\*\* JOB (?P<job_id>\d[\d_+]*) ON ", literal="*** JOB "),
    rule(Kind.RUN, r"\*\*\* STEP (?P<job_id>\d+)\.\w+ ON ", literal="*** STEP "),
    rule(Kind.RUN, r"StepId=(?P<job_id>\d+)\.", literal="StepId="),
    rule(Kind.RUN, r"in step (?P<job_id>\d+)\.\w+ cgroup", literal=" cgroup"),
    rule(Kind.RUN, r"\bSLURM_JOB(?:_?ID|ID)=['\"]?(?P<job_id>\d+)\b", literal="SLURM_JOB"),
)

_TIME = re.compile(
    rb"(?<![\d.])(20[0-9]{2}-[01][0-9]-[0-3][0-9])[ T_]([0-2][0-9]:[0-5][0-9]:[0-5][0-9])(?!\d| [AP]M\b)"
)


def first_time(text: bytes, begin: int, end: int) -> str | None:
    """The first time stamp in `text` between these positions, as ISO 8601 without a zone."""
    match = _TIME.search(text, begin, max(begin, end))
    return f"{match[1].decode()}T{match[2].decode()}" if match else None
