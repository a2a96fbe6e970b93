"""NeMo: the lines of its progress printer (2.x) and its progress bars (1.x). Steps count from 0. Memory is in bytes.

A bar counts the batches that are done, from 1 and often through all epochs, and prints its numbers with three digits
where that is shorter: from 100000 on, its `global_step` is a rounded one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from hpc_llm.parsing import commas
from hpc_llm.parsing.formats.lightning import AGAIN, BAR, EVALUATED, MEMBER, MEMBERS
from hpc_llm.parsing.registry import LineFormat
from hpc_llm.parsing.rules import Kind, Value, number, rule

_PAIR = re.compile(
    rb"\b([A-Za-z][\w/-]{0,60})(?: in s)?(?:: |=)([-+]?(?:[\d.,]*\d(?:[eE][-+]?\d+)?|(?:nan|inf)(?:\.0)?))(?=[,\s\]|]|$)"
)

_NAMES = {
    "reduced_train_loss": "loss",
    "loss": "loss",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "gradient_norm": "grad_norm",
    "global_batch_size": "global_batch_size",
    "train_step_timing": "step_time_s",
    "TFLOPS_per_GPU": "model_tflops_per_gpu",
    "max_memory_allocated": "peak_allocated_bytes",
    "max_memory_reserved": "peak_reserved_bytes",
    "val_loss": "eval_loss",
    "global_step": "step",
}
_WHOLE = frozenset(("peak_allocated_bytes", "peak_reserved_bytes", "step", "global_batch_size"))


_EXACT_BELOW = 100_000
"""Smaller steps are printed with all their digits."""


def _columns(pairs: bytes) -> dict[str, Value]:
    """The known pairs; the printer shows whole numbers like 53930270720 or 5.393e+10. It parts no thousands: a comma stands before decimals."""
    found: dict[str, Value] = {}
    for key, text in _PAIR.findall(pairs):
        column = _NAMES.get(key.decode().strip())
        if column == "loss":
            found |= commas.read(column, None, text)
        is_read = column is not None and b"," not in text
        value = number(text.removesuffix(b".0")) if is_read else None  # a NaN is printed as nan.0
        if (
            column is None
            or value is None
            or not (abs(value) < 1e18 or (column == "loss" and not math.isfinite(value)))
        ):
            continue
        found[column] = round(value) if column in _WHOLE else value
    return found


def _printed(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """A line of the printer, which counts to the number of the last step."""
    found = _columns(match["pairs"])
    total = {"total_steps": int(match["all"])}
    return {"step": int(match["number"]), **found, **total} if commas.says_loss(found) else None


def _bar(match: re.Match[bytes]) -> Mapping[str, Value] | None:
    """A bar: one whose length is known says the last step of its epoch."""
    found, done, total = _columns(match["pairs"]), int(match["number"]), match["all"]
    if match["again"] or not commas.says_loss(found):
        return None
    if float(found.get("step", _EXACT_BELOW)) >= _EXACT_BELOW:
        found["step"] = max(done - 1, 0)
    if "eval_loss" in found:  # after a validation the last bar is drawn again: the same step is no other run
        found["order"] = found["step"]
    if total is not None and total != b"?":
        found["total_steps"] = (int(match["epoch"]) + 1) * int(total) - 1
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
            _printed,
            literal="Training epoch ",
        ),
        rule(
            Kind.STEP,
            BAR + r"(?P<pairs>[^\]\n]{0,400}reduced_train_loss=[^\]\n]{0,600})\]" + AGAIN,
            _bar,
            literal="reduced_train_loss=",
        ),
        rule(Kind.RUN, EVALUATED, literal="Epoch "),
        rule(Kind.RUN, MEMBERS, literal=MEMBER),
        rule(Kind.RUN, r"trainer\.max_steps[=:] ?<total_steps>", literal="trainer.max_steps"),
        rule(Kind.END, r"`Trainer\.fit` stopped: ", literal="`Trainer.fit` stopped: "),
    ),
)
