"""axolotl: the Hugging Face Trainer's output with its own messages and memory figures."""

from __future__ import annotations

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, leave_empty, rule


def _finish(values: dict[str, Value]) -> None:
    """Its releases count the tokens of one device differently: all, those that are learned, those of the last step alone."""
    if "prints_rate" in values:
        why = "tokens/s: of a device, and the log does not say which of its tokens axolotl counts"
        leave_empty(values, why, "tokens_per_second")


FORMAT = LineFormat(
    name="axolotl",
    hints=(b"[axolotl.", b"'memory/max_allocated (GiB)'", b"'memory/max_mem_allocated(gib)'"),
    precedence=38,
    averages=False,
    rules=(
        rule(Kind.RUN, r"\[axolotl\.", literal="[axolotl."),
        rule(Kind.RUN, r"'memory/max_(?:mem_)?allocated ?\((?i:gib)\)'", literal="'memory/max_"),
        rule(Kind.RUN, r"'tokens(?:_per_second|/train_per_sec)_per_gpu': (?P<prints_rate>'?\d)", literal="_per_gpu': "),
        rule(Kind.END, r"\[axolotl\.[^\]\n]*\][^\n]*Training [Cc]ompleted!", literal="[axolotl."),
    ),
    finish=_finish,
)
