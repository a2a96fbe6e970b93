"""`profiler.txt` of llm-benchmark and llm-toolkit: JSON objects, one after the other, one a run.

`key` holds the setting: model, batch size per device, sequence length, then flags. `mem (GB)` is what the driver counts as
used on the device of rank 0 when training ends, in units of 1024**3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hpc_llm.parsing.registry import DocumentFormat
from hpc_llm.parsing.rows import TRAIN, Row, Step
from hpc_llm.records.run import Outcome

_KEY = re.compile(r"(?P<model>.{1,200}?)-bs(?P<batch>\d{1,9})-seq(?P<length>\d{1,9})-(?P<flags>.*)")


def read(text: bytes) -> Iterator[tuple[Row, list[Step]]]:
    """The runs of the file; objects that are cut short end it."""
    decoder, position, content = json.JSONDecoder(), 0, text.decode("utf-8", "replace")
    while (position := content.find("{", position)) >= 0:
        try:
            found, position = decoder.raw_decode(content, position)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict) and "token/s" in found:
            yield _row(found), []


def _row(found: dict[str, Any]) -> Row:
    row = Row(format="profiler", outcome=Outcome.COMPLETED.value, task="finetune", kind=TRAIN)
    row.step_time_s_mean, row.tokens_per_second = _number(found.get("step_time (s)")), _number(found.get("token/s"))
    memory = _number(found.get("mem (GB)"))
    row.peak_device_bytes = round(memory * 2**30) if memory is not None else None
    row.model_tflops_per_gpu = _number(found.get("FLOPS_per_device (TFLOPS)"))
    batch = found.get("global_batch_size")
    row.global_batch_size = batch if isinstance(batch, int) else None
    match = _KEY.match(str(found.get("key", "")))
    if match:
        row.model, row.micro_batch_size = match["model"], int(match["batch"])
        row.sequence_length = int(match["length"])
        _read_flags(row, match["flags"])
    return row


def _read_flags(row: Row, flags: str) -> None:
    """Precision and the method in the letters of the paper."""
    for precision in ("bf16", "fp16"):
        if f"-{precision}-" in f"-{flags}-":
            row.precision = precision
    stage = re.search(r"zero([23])", flags)
    letters = [f"z{stage[1]}"] if stage else []
    lora, quantized = "lora" in flags, "-quant-" in f"-{flags}-"
    letters += ["o"] if re.search(r"-off$", flags) else []
    letters += ["qlora" if lora and quantized else "lora" if lora else "q"] if lora or quantized else []
    letters += ["r"] if "recompute" in flags else []
    letters += ["f"] if "flash" in flags else []
    row.method = "+".join(letters) or None


def _number(value: object) -> float | None:
    """The number; some versions add the unit."""
    match = re.match(r"\s*([\d.]+(?:[eE][-+]?\d+)?)", str(value))
    try:
        return float(match[1]) if match else None
    except ValueError:
        return None


FORMAT = DocumentFormat(name="profiler", hints=((b'"token/s"', b'"step_time (s)"'),), read=read)
