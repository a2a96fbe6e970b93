"""axolotl: the Hugging Face Trainer's output with its own messages and memory figures."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, rule

FORMAT = LineFormat(
    name="axolotl",
    hints=(b"[axolotl.", b"'memory/max_allocated (GiB)'", b"'memory/max_mem_allocated(gib)'"),
    precedence=38,
    averages=False,
    rules=(
        rule(Kind.RUN, r"\[axolotl\.", literal="[axolotl."),
        rule(Kind.RUN, r"'memory/max_(?:mem_)?allocated ?\((?i:gib)\)'", literal="'memory/max_"),
        rule(Kind.END, r"\[axolotl\.[^\]\n]*\][^\n]*Training [Cc]ompleted!", literal="[axolotl."),
    ),
)
