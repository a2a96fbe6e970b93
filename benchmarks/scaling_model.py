"""What `estimate` expects of more GPUs than anybody here has measured, beside the one and two that were.

    python benchmarks/scaling_model.py                        weak and strong scaling of examples/scaling.yaml
    python benchmarks/scaling_model.py STUDY.yaml --account x

The model's assumptions, all of them in `hpc_llm/estimating/`:

- A step is its products, memory traffic and optimizer, of each rank the same, and its collectives, which nothing hides but where the
  engine exchanges beside the computation.
- Collectives are rings through all ranks. Within a node they have the GPUs' links, between nodes `between_nodes` of
  `time_constants.json`, which is 12.5 GB/s a rank until runs of a cluster say otherwise (`hpc-llm estimate --calibrate`).
- There is no contention, no straggler, and no growth of latency with the number of ranks: what comes out is an upper bound.

Efficiency is tokens/s of a GPU beside those of the smallest run of the same row. Nobody measured more than two GPUs of one node.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hpc_llm

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    arguments = read_arguments()
    estimates: Any = hpc_llm.estimate(str(arguments.study), account=arguments.account)
    predicted = [one for one in estimates if one.time is not None]
    for kind, runs in (("weak", weak(predicted)), ("strong", strong(predicted))):
        show(kind, runs)
    measured()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", type=Path, default=ROOT / "examples" / "scaling.yaml")
    parser.add_argument(
        "--account", default="bbka-delta-gpu", help="one that the cluster would take: nothing is submitted"
    )
    return parser.parse_args()


def strong(estimates: Iterable[Any]) -> list[Any]:
    """Those that the file calls so: the same work, shared by more GPUs."""
    return [one for one in estimates if one.run.startswith("strong")]


def weak(estimates: Iterable[Any]) -> list[Any]:
    return [one for one in estimates if not one.run.startswith("strong")]


def show(kind: str, runs: list[Any]) -> None:
    if not runs:
        return
    print(f"{kind} scaling, {runs[0].model} by {runs[0].method} on {runs[0].cluster}")
    print(f"{'GPUs':>6} {'step, s':>9} {'tokens/s':>10} {'a GPU':>8} {'efficiency':>10}  collectives")
    first = runs[0].time.tokens_per_second / runs[0].gpus
    for one in runs:
        each = one.time.tokens_per_second / one.gpus
        share = one.time.terms["communication"] / one.time.step_time_s
        print(
            f"{one.gpus:>6} {one.time.step_time_s:>9.3f} {one.time.tokens_per_second:>10.0f} {each:>8.0f} {each / first:>10.2f}  {share:.0%} of the step"
        )
    print()


def measured() -> None:
    """From one GPU to two of one node, where the same was run on both."""
    found: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    same = (
        "engine",
        "gpu",
        "model",
        "method",
        "micro_batch_size",
        "sequence_length",
        "gradient_accumulation_steps",
        "switches",
    )
    with (ROOT / "benchmarks" / "points.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["outcome"] == "COMPLETED" and row["tokens_per_second"] and row["world_size"]:
                found[tuple(row[key] for key in same)][int(row["num_gpus"])] = float(row["tokens_per_second"])
    print(
        "measured, tokens/s of two GPUs beside twice those of one (weak scaling; other days and machines, two runs on one host at times: rough)"
    )
    for key, rates in sorted(found.items()):
        if {1, 2} <= rates.keys():
            print(f"  {rates[2] / (2 * rates[1]):.2f}  {', '.join(part for part in key if part)}")


if __name__ == "__main__":
    main()
