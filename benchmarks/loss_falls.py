"""Whether the loss falls with what hpc-llm chooses by itself: learning rate, its ramp, synthetic data.

    python benchmarks/loss_falls.py [--model llama2-7b] [--methods z3,z2o,q] [--steps 60] [--seeds 1,2] [--csv losses.csv]

A 7B on one GPU: z3 wants 110 GB of device memory, z2o and z3o 130 GiB of the host's, q 8 GB of the device's.
Needs what `methods_on_gpu.py` needs. Prints one Markdown table and, as the last line, one JSON object with the device, the
versions and the command; --csv adds a line a run to a file, by which settings are compared: a difference means something where
it is larger than the one between seeds. A loss falls when the mean of the last tenth of the steps is at least one nat below the first
loss, and none lies half a nat above the first. Exit 1 where one of them does not.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_gpu import facts
from methods_on_gpu import last_lines, prepare, run

from hpc_llm.planning.experiment import Experiment, Plan
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import Site, plan
from hpc_llm.records.files import read_json, read_json_lines, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.hardware import detect

FALL_NATS, JUMP_NATS = 1.0, 0.5


def main() -> int:
    arguments = read_arguments()
    asked = [
        make_plan(method, seed, arguments)
        for method in arguments.methods.split(",")
        for seed in arguments.seeds.split(",")
    ]
    about, environment = prepare(compiles=any(planned.engine.name == "deepspeed" for planned in asked))
    rows = []
    with tempfile.TemporaryDirectory(prefix="hpc-llm-loss-") as scratch:
        for number, planned in enumerate(asked):
            rows.append(train(planned, Path(scratch) / str(number), environment, arguments.timeout))
            if arguments.csv:
                keep(arguments.csv, planned, rows[-1], about)
            print(f"{planned.method}: {'falls' if rows[-1]['falls'] else 'does not fall'}", file=sys.stderr, flush=True)
    print(table(rows))
    print(json.dumps({**about, "command": shlex.join(["python", *sys.argv]), "model": arguments.model, "rows": rows}))
    return 0 if all(row["falls"] for row in rows) else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama2-7b")
    parser.add_argument("--methods", default="z3,z2o,q")
    parser.add_argument("--micro-batch-size", type=int, default=1)
    parser.add_argument("--sequence-length", type=int, default=350)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--gpus", type=int, help="of this machine, one rank each; one is the default")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="as hpc-llm takes it")
    parser.add_argument("--seeds", default="42", help="each method with each of them")
    parser.add_argument("--csv", type=Path, help="file that gets a line a run")
    parser.add_argument("--timeout", type=int, default=550, help="seconds for one method")
    return parser.parse_args()


def make_plan(method: str, seed: str, arguments: argparse.Namespace) -> Plan:
    """What `hpc-llm submit --cluster local` would run here."""
    names = ("model", "micro_batch_size", "sequence_length", "steps")
    asked: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    if arguments.gpus:
        asked["gpus_per_node"] = arguments.gpus
    experiment = Experiment(cluster="local", method=method, seed=int(seed), set=tuple(arguments.set), **asked)
    return plan(experiment, load_cluster("local"), load_method(method), Site(scheduler="local", hardware=detect())).plan


def train(planned: Plan, folder: Path, environment: dict[str, str], timeout: float) -> dict[str, Any]:
    """One row: what was chosen, and what the loss did."""
    paths = RunPaths(folder)
    folder.mkdir()
    write_json(paths.experiment, {"schema": 1, "run_id": paths.run_id, "plan": planned.to_dict()})
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
        said = last_lines(done.stderr)
    except subprocess.TimeoutExpired:  # the losses until then are kept
        said = f"no end within {timeout:.0f} s"
    result = read_json(paths.result) or {"outcome": "none", "outcome_reason": said}
    losses = [step["loss"] for step in read_json_lines(paths.steps) if step.get("loss") is not None]
    row = {
        "method": planned.method,
        "learning_rate": planned.optimizer.lr,
        "lr_ramp_steps": planned.training.lr_ramp_steps,
        "loss_floor_nats": planned.training.loss_floor_nats,
        "losses": losses,
        "tokens_per_second": result.get("tokens_per_second"),
        "measured_window_s": result.get("measured_window_s"),
        "device_clock_s": result.get("device_clock_s"),
        "wall_s": round(time.monotonic() - began, 1),
        "problem": None if result["outcome"] == "COMPLETED" else f"{result['outcome']}: {result['outcome_reason']}",
    }
    return {**row, "falls": row["problem"] is None and falls(losses)}


def falls(losses: list[float]) -> bool:
    return last(losses) < losses[0] - FALL_NATS and max(losses) < losses[0] + JUMP_NATS


def last(losses: list[float]) -> float:
    """Mean of the last tenth."""
    end = losses[-max(len(losses) // 10, 1) :]
    return sum(end) / len(end)


def keep(path: Path, planned: Plan, row: dict[str, Any], about: dict[str, Any]) -> None:
    """Add the run's line to the file; a file without a head gets it."""
    losses = row["losses"]
    line = {
        "method": planned.method,
        "model": planned.model.name,
        "optimizer": planned.optimizer.type,
        "engine": planned.engine.name,
        "seed": planned.training.seed,
        "steps": len(losses),
        "micro_batch_size": planned.batch.micro_batch_size,
        "sequence_length": planned.batch.sequence_length,
        "learning_rate": planned.optimizer.lr,
        "first": round(losses[0], 4) if losses else "",
        "last_tenth": round(last(losses), 4) if losses else "",
        "problem": row["problem"] or "",
        **facts(about),
    }
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(line))
        if not file.tell():
            writer.writeheader()
        writer.writerow(line)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| method | learning rate | ramp | first | highest | last tenth | floor | |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        losses = row["losses"]
        figures = f"{losses[0]:.2f} | {max(losses):.2f} | {last(losses):.2f}" if losses else " | | "
        said = row["problem"] or ("falls" if row["falls"] else "does not fall")
        lines.append(
            f"| {row['method']} | {row['learning_rate']:g} | {row['lr_ramp_steps']} | {figures} | "
            f"{row['loss_floor_nats']:.2f} | {said.replace('|', '/')} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
