"""What methods need and take on this machine's GPUs, one row of a CSV a run: the points by which estimates are judged.

    python benchmarks/points.py --csv points.csv --seconds 540 [--methods z3,z2o,…] [--models …] [--engines …]

Each run is hpc-llm's own worker in a fresh process with a few steps; its row holds the plan's and the result's figures, and its
outcome where it did not complete. Combinations that the file holds already are left out, so that a file grows over several
sessions on several machines. Needs what `methods_on_gpu.py` needs.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from methods_on_gpu import last_lines, prepare, run

from hpc_llm.errors import HpcLlmError
from hpc_llm.plan.experiment import Experiment, Plan
from hpc_llm.plan.method import load_method
from hpc_llm.plan.planning import Site, plan
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.hardware import detect

MODELS = ("llama3.2-1b", "llama3.2-3b", "llama2-7b")
METHODS = ("z3", "q", "lora", "qlora", "z2o", "z3o", "ddp", "z3+r", "q+r", "qlora+r", "z2o+r", "z3o+r")
BATCHES = ((1, 350), (1, 2048), (8, 350), (4, 2048), (8, 2048))
KEY = ("gpu", "num_gpus", "engine", "model", "method", "micro_batch_size", "sequence_length")


def main() -> int:
    arguments = read_arguments()
    deadline = time.monotonic() + arguments.seconds
    about, environment = prepare(compiles="deepspeed" in arguments.engines.split(","))
    machine = {"gpu": about["device"], "num_gpus": arguments.gpus, **about["versions"]}
    rows = read_rows(arguments.csv)
    done = {tuple(str(row.get(name)) for name in KEY) for row in rows}
    for engine, model, method, batch, length in wanted(arguments):
        key = (machine["gpu"], arguments.gpus, engine, model, method, batch, length)
        if tuple(map(str, key)) in done or time.monotonic() > deadline - 20:
            continue
        row = {
            **machine,
            "engine": engine,
            "model": model,
            "method": method,
            "micro_batch_size": batch,
            "sequence_length": length,
        }
        rows.append({**row, **measure(row, environment, min(arguments.timeout, deadline - time.monotonic()))})
        write_rows(arguments.csv, rows)
        shown = {name: rows[-1].get(name) for name in ("outcome", "tokens_per_second", "peak_allocated_bytes")}
        print(engine, model, method, batch, length, shown, file=sys.stderr, flush=True)
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540.0, help="for all runs together")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--engines", default="deepspeed")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one run")
    return parser.parse_args()


def wanted(arguments: argparse.Namespace) -> Iterator[tuple[str, str, str, int, int]]:
    """All combinations: each batch shape for all methods and models before the next."""
    names = (arguments.methods.split(","), arguments.models.split(","), arguments.engines.split(","))
    for (batch, length), method, model, engine in product(BATCHES, *names):
        yield engine, model, method, batch, length


def measure(asked: dict[str, Any], environment: dict[str, str], timeout: float) -> dict[str, Any]:
    """The figures of one run, or why there are none."""
    try:
        planned = make_plan(asked)
    except HpcLlmError as error:
        return {"outcome": "REFUSED", "reason": str(error)}
    with tempfile.TemporaryDirectory(prefix="hpc-llm-points-") as scratch:
        paths = RunPaths(Path(scratch) / "run")
        write_json(paths.experiment, {"schema": 1, "run_id": "run", "plan": planned.to_dict()})
        launch = ["-m", "hpc_llm.worker.pretrain_llm", "--run-dir", str(paths.root)]
        if planned.parallel.world_size > 1:
            launch = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={planned.parallel.world_size}",
                *launch,
            ]
        began = time.monotonic()
        try:
            done = run([sys.executable, *launch], {**environment, "HPC_LLM_LAUNCHER": planned.job.launcher}, timeout)
        except subprocess.TimeoutExpired as error:
            return {"outcome": "TIMEOUT", "reason": f"not over after {error.timeout:.0f} s"}
        result = read_json(paths.result) or {"outcome": "FAILED", "outcome_reason": last_lines(done.stderr)}
        found = {
            name: value for name, value in result.items() if isinstance(value, (int, float, str)) and name not in asked
        }
        return {
            **found,
            "reason": str(result.get("outcome_reason") or "")[:200],
            "wall_s": round(time.monotonic() - began, 1),
        }


def make_plan(asked: dict[str, Any]) -> Plan:
    """What `hpc-llm submit --cluster local` would run here."""
    names = ("model", "micro_batch_size", "sequence_length")
    values: dict[str, Any] = {name: asked[name] for name in names}
    experiment = Experiment(
        cluster="local",
        method=asked["method"],
        set=(f"engine={asked['engine']}",),
        steps=8,
        warmup_steps=3,
        gpus_per_node=asked["num_gpus"],
        **values,
    )
    site = Site(scheduler="local", hardware=detect())
    return plan(experiment, load_cluster("local"), load_method(asked["method"]), site).plan


def read_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{"engine": "deepspeed", **row} for row in csv.DictReader(file)]  # there was one engine at first


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
