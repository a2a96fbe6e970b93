"""What DeepSpeed's own estimators and `accelerate estimate-memory` say of the runs in points.csv, to stand beside ours.

    python benchmarks/other_estimators.py     # writes results/other_estimators.csv

Both know the size of the model and, DeepSpeed's, the number of GPUs; neither knows batches, so each says the same of all shapes.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from estimate_accuracy import Point, planned, points

from hpc_llm.estimating.shapes import sizes_in

OUT = Path(__file__).parent / "results" / "other_estimators.csv"
COLUMNS = ("tool", "version", "engine", "method", "model", "gpus", "device_bytes")


def main() -> int:
    rows = {tuple(row.values()): row for point in points() for row in said(point)}
    with OUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows.values())
    print(f"{len(rows)} rows in {OUT}")
    return 0


def said(point: Point) -> Iterator[dict[str, Any]]:
    """A row for each tool that has something to say of such a run."""
    plan, _ = planned(point)
    sizes = sizes_in(plan)
    own = {"engine": point.engine, "method": point.method, "model": point.model, "gpus": point.gpus}
    stage = plan.engine.deepspeed.get("zero_optimization", {}).get("stage", 0)
    if point.engine == "deepspeed" and stage and plan.model.peft is None:
        size = _deepspeed(sizes.parameters, sizes.embedding, point.gpus, stage, point.method.startswith(("z2o", "z3o")))
        yield {"tool": "DeepSpeed's estimators", "version": version("deepspeed"), **own, "device_bytes": size}
    if point.method.startswith("ddp"):
        size = _accelerate(4 * sizes.parameters)
        yield {"tool": "accelerate estimate-memory", "version": version("accelerate"), **own, "device_bytes": size}


def _deepspeed(parameters: int, largest: int, gpus: int, stage: int, offloads: bool) -> int:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    if stage == 3:
        _, size, _ = estimate_zero3_model_states_mem_needs(
            parameters, largest, num_gpus_per_node=gpus, cpu_offload=offloads, cpu_offload_params=offloads
        )
    else:
        _, size = estimate_zero2_model_states_mem_needs(parameters, num_gpus_per_node=gpus, cpu_offload=offloads)
    return int(size)


def _accelerate(in_fp32: int) -> int:
    from accelerate.commands.estimate import estimate_training_usage

    return int(max(estimate_training_usage(in_fp32, "bfloat16").values()))


if __name__ == "__main__":
    sys.exit(main())
