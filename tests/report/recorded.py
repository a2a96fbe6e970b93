"""Telemetry as the worker leaves it beside a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hpc_llm.records.run import RunPaths

BEGAN = 1777629600.0


def write_telemetry(run: Path, utilization: Sequence[float | None], gpus: int = 2, node: int = 0) -> None:
    """A line a second for each of `gpus` GPUs, all equally busy; the last line is cut as a killed job leaves it."""
    lines = [
        json.dumps({
            "time": BEGAN + second + 0.001 * second, "gpu": gpu, "utilization": value, "memory_used_bytes": 1 << 34,
            "power_w": 281.4, "temperature_c": None,
        })
        for second, value in enumerate(utilization)
        for gpu in range(gpus)
    ]  # fmt: skip
    RunPaths(run).telemetry_of(node).write_text("\n".join(lines) + '\n{"time": 17776')
