"""NeMo: the lines of its progress printer (2.x) and its progress bars (1.x). Steps count from 0. Memory is in bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpc_llm.parse.registry import LineFormat
from hpc_llm.parse.rules import Kind, Value, number, rule

_PAIR = re.compile(
    rb"\b([A-Za-z][\w/-]{0,60})(?: in s)?(?:: |=)([-+]?(?:[\d.,]*\d(?:[eE][-+]?\d+)?|nan|inf))(?=[,\s\]|]|$)"
)

_NAMES = {
    "reduced_train_loss": "loss",
    "loss": "loss",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "global_batch_size": "global_batch_size",
    "train_step_timing": "step_time_s",
    "TFLOPS_per_GPU": "model_tflops_per_gpu",
    "max_memory_allocated": "peak_allocated_bytes",
    "max_memory_reserved": "peak_reserved_bytes",
    "val_loss": "eval_loss",
    "global_step": "step",
}
_WHOLE = frozenset(("peak_allocated_bytes", "peak_reserved_bytes", "step", "global_batch_size"))


def _columns(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """The known pairs; the printer shows whole numbers like 53930270720 or 5.393e+10."""
    found: dict[str, Value] = {}
    for key, text in _PAIR.findall(match["pairs"]):
        column = _NAMES.get(key.decode().strip())
        value = number(text) if column is not None else None
        if column is not None and value is not None and abs(value) < 1e18:
            found[column] = round(value) if column in _WHOLE else value
    if "loss" not in found:
        return None
    found.setdefault("step", int(match["number"]))
    found["total_steps"] = int(match["all"])
    return found


FORMAT = LineFormat(
    name="nemo",
    hints=(b"reduced_train_loss", b"Training epoch "),
    confirm=re.compile(rb"Training epoch \d+, iteration \d+/\d+ \||\breduced_train_loss[=:]"),
    precedence=45,
    rules=(
        rule(
            Kind.STEP,
            r"Training epoch \d+, iteration (?P<number>\d+)/(?P<all>\d+) \|(?P<pairs>[^\n]*)",
            _columns,
            literal="Training epoch ",
        ),
        rule(
            Kind.STEP,
            r"Epoch \d+: [^\n\[]{0,300}?(?P<number>\d+)/(?P<all>\d+) \[(?P<pairs>[^\]\n]{0,400}reduced_train_loss=[^\]\n]{0,600})\]",
            _columns,
            literal="reduced_train_loss=",
        ),
        rule(Kind.RUN, r"trainer\.max_steps[=:] ?<total_steps>", literal="trainer.max_steps"),
        rule(Kind.END, r"`Trainer\.fit` stopped: ", literal="`Trainer.fit` stopped: "),
    ),
)
