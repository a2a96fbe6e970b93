"""torchrun: it says once, before it starts its processes, what it sets for them; behind steps that is another launch, whose output goes
into the same file. When it starts its processes again after a failure it does not say so again."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule
from hpc_llm.text.launches import TORCHRUN

FORMAT = LineFormat(
    name="torchrun",
    hints=(TORCHRUN.encode(),),
    precedence=210,
    kind=None,
    companion=True,
    rules=(rule(Kind.SETUP, TORCHRUN, literal=TORCHRUN, aside=True),),
)
