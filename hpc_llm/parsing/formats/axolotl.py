"""axolotl: the Hugging Face Trainer's output with its own messages and memory figures, and its configuration as indented JSON.

`batch_size` there is that of all ranks in newer releases, and of one in older ones: it is taken where the other settings give it.
`sequence_len` is the length of each sequence where samples are packed, else the longest that there may be.
"""

from __future__ import annotations

import math

from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Rule, Value, leave_empty, rule


def _finish(values: dict[str, Value]) -> None:
    """Its releases count the tokens of one device differently: all, those that are learned, those of the last step alone."""
    _take_settings(values)
    if "prints_rate" in values:
        why = "tokens/s: of a device, and the log does not say which of its tokens axolotl counts"
        leave_empty(values, why, "tokens_per_second")


_OF_ALL = ("micro_batch_size", "gradient_accumulation_steps", "world_size")


def _take_settings(values: dict[str, Value]) -> None:
    factors = [values.get(name) for name in _OF_ALL]
    batch = math.prod(one for one in factors if isinstance(one, int)) if None not in factors else None
    if batch is not None and values.get("batch_of_config") == batch:
        values.setdefault("global_batch_size", batch)
    length = values.get("length_of_config")
    if isinstance(length, float) and length.is_integer() and "is_packed" in values:
        values.setdefault("sequence_length", int(length))


def _setting(name: str, column: str) -> Rule:
    """A line of the configuration, of which all are indented by two."""
    return rule(Kind.RUN, rf'^  "{name}": {column},?$', literal=f'  "{name}": ')


FORMAT = LineFormat(
    name="axolotl",
    hints=(b"[axolotl.", b"'memory/max_allocated (GiB)'", b"'memory/max_mem_allocated(gib)'"),
    precedence=38,
    averages=False,
    rules=(
        rule(Kind.RUN, r"\[axolotl\.", literal="[axolotl."),
        *(_setting(name, f"<{name}>") for name in _OF_ALL),
        _setting("batch_size", "<batch_of_config>"),
        _setting("sequence_len", "<length_of_config>"),
        _setting("sample_packing", "(?P<is_packed>true)"),
        rule(Kind.RUN, r"'memory/max_(?:mem_)?allocated ?\((?i:gib)\)'", literal="'memory/max_"),
        rule(Kind.RUN, r"'tokens(?:_per_second|/train_per_sec)_per_gpu': (?P<prints_rate>'?\d)", literal="_per_gpu': "),
        rule(Kind.END, r"\[axolotl\.[^\]\n]*\][^\n]*Training [Cc]ompleted!", literal="[axolotl."),
    ),
    finish=_finish,
)
