"""Ours beside what a user would write for each method: in turn on one machine, medians, one line a row in benchmarks/results/.

    make bench-gpu
    python benchmarks/bench_gpu.py --rows lora-4x512,q-1x350 --repeats 3 --out benchmarks/results/bench-gpu.csv
    python benchmarks/bench_gpu.py --rows z3-1x350+z3-1x350-naive --runs runs.jsonl
    python benchmarks/bench_gpu.py --list

A row whose GPUs are not there is left out, and said so. Machines of one kind differ: only ratios within one row are to be quoted.
Rows joined by + are one sitting: in each turn every program that they name runs once, so that ours stands beside two peers, or two of
ours beside one. --runs keeps each run as it ends, a line each.
Needs torch, transformers, peft and bitsandbytes, and what the login side of hpc-llm needs. Exit code 1 where a program failed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from methods_on_gpu import prepare, run  # noqa: E402

from hpc_llm.planning.experiment import Experiment, Plan  # noqa: E402
from hpc_llm.planning.method import load_method  # noqa: E402
from hpc_llm.planning.model import Architecture, architecture  # noqa: E402
from hpc_llm.planning.plan import Site, plan  # noqa: E402
from hpc_llm.records.files import read_json, read_json_lines, write_json  # noqa: E402
from hpc_llm.records.run import RunPaths  # noqa: E402
from hpc_llm.site.cluster import load_cluster  # noqa: E402
from hpc_llm.site.hardware import detect  # noqa: E402

GIB = 2**30
PEERS = ROOT / "benchmarks" / "peers"
LONGEST_S = 400
SHOWN = 300
"""Characters of what a program that failed said last."""


@dataclass(frozen=True)
class Row:
    """One method and shape, and who does the same."""

    name: str
    method: str
    model: str
    micro_batch_size: int
    sequence_length: int
    peer: str
    """A program in peers/ and its switches."""
    gpus: int = 1
    settings: tuple[str, ...] = ()
    peer_steps: tuple[int, int] | None = None
    """Steps of a slow peer, and how many of them are warm-up; None: as many as ours."""

    @property
    def ours(self) -> tuple[Any, ...]:
        """What makes two runs of ours the same."""
        return (self.method, self.model, self.micro_batch_size, self.sequence_length, self.gpus, self.settings)

    @property
    def theirs(self) -> tuple[Any, ...]:
        """The same of the peer."""
        return (self.peer, self.model, self.micro_batch_size, self.sequence_length, self.gpus, self.peer_steps)


OFFLOAD = ("recompute=true",)
"""The peer recomputes as well."""
FOUR = "gradient_accumulation_steps=4"
FEW = (7, 2)
"""Plain DeepSpeed takes a second and more for a step, and a minute until the first."""
ROWS = (
    Row("lora-4x512", "lora", "llama3.2-3b", 4, 512, "trainer_peft.py"),
    Row("lora-1x2048", "lora", "llama3.2-3b", 1, 2048, "trainer_peft.py"),
    Row("qlora-4x512", "qlora", "llama3.2-3b", 4, 512, "trainer_peft.py --quantized"),
    Row("q-1x350", "q", "llama2-7b", 1, 350, "graph_by_hand.py"),
    Row("q-1x350-bf16", "q", "llama2-7b", 1, 350, "graph_by_hand.py", 1, ("optimizer.type=AdamWBF16",)),
    Row("q-8x2048", "q", "llama2-7b", 8, 2048, "graph_by_hand.py --eager"),
    Row("z3-1x350-fsdp2", "z3", "llama2-7b", 1, 350, "fsdp2_by_hand.py", 2, ("engine=fsdp2",)),
    Row("z3-8x2048-fsdp2", "z3", "llama2-7b", 8, 2048, "fsdp2_by_hand.py", 2, ("engine=fsdp2",)),
    Row("z3-1x350", "z3", "llama2-7b", 1, 350, "fsdp2_by_hand.py", 2),
    Row("z3-1x350-naive", "z3", "llama2-7b", 1, 350, "deepspeed_by_hand.py", 2, peer_steps=FEW),
    Row("z3-2x2048", "z3", "llama2-7b", 2, 2048, "fsdp2_by_hand.py", 2),
    Row("z3-4x2048", "z3", "llama2-7b", 4, 2048, "fsdp2_by_hand.py", 2),
    Row("z3-8x2048", "z3", "llama2-7b", 8, 2048, "fsdp2_by_hand.py", 2),
    Row("z3-1x350-deepspeed", "z3", "llama2-7b", 1, 350, "deepspeed_by_hand.py", 2, ("keeps_parameters=false",)),
    Row("z3-1x350-given-up", "z3", "llama2-7b", 1, 350, "fsdp2_by_hand.py", 2, ("keeps_parameters=false",)),
    Row("z2o-1x350", "z2o", "llama2-7b", 1, 350, "deepspeed_by_hand.py --states-on-host", 2, OFFLOAD),
    Row(
        "z2o-1x350-host",
        "z2o",
        "llama2-7b",
        1,
        350,
        "deepspeed_by_hand.py --states-on-host",
        2,
        (*OFFLOAD, "offloaded_step=host"),
    ),
    Row(
        "z2o-1x350-bf16",
        "z2o",
        "llama2-7b",
        1,
        350,
        "deepspeed_by_hand.py --states-on-host",
        2,
        (*OFFLOAD, "moments_precision=bf16"),
    ),
    Row("z3o-1x350", "z3o", "llama2-7b", 1, 350, "deepspeed_by_hand.py --all-on-host", 2, OFFLOAD),
    Row("z2o-3b-1x350", "z2o", "llama3.2-3b", 1, 350, "deepspeed_by_hand.py --states-on-host", 1, OFFLOAD),
    Row("z3o-3b-1x350", "z3o", "llama3.2-3b", 1, 350, "deepspeed_by_hand.py --all-on-host", 1, OFFLOAD),
    Row("z2o-8x2048", "z2o", "llama2-7b", 8, 2048, "fsdp2_by_hand.py --four-micro-batches", 2, (FOUR,)),
    Row("z3o-8x2048", "z3o", "llama2-7b", 8, 2048, "fsdp2_by_hand.py --four-micro-batches", 2, (FOUR,)),
)

COLUMNS = (
    "row method model gpus micro_batch_size sequence_length settings peer ours_step_ms peer_step_ms ratio ours_allocated_gib "
    "peer_allocated_gib ours_reserved_gib peer_reserved_gib ours_first_step_s peer_first_step_s ours_loss peer_loss ours_fused ours_adaptations repeats problem "
    "device versions commit command date"
).split()


def main() -> int:
    arguments = read_arguments()
    sittings = list(chosen(arguments))
    if arguments.list:
        for row in (row for sitting in sittings for row in sitting):
            print(f"{row.name}: ours {row.method} on {row.gpus} GPU, beside {row.peer}")
        return 0
    about, environment = prepare(compiles=False)
    hardware, failed = detect(), 0
    for sitting in sittings:
        there = [row for row in sitting if row.gpus <= max(hardware.gpus, 1)]
        for row in sitting:
            if row not in there:
                print(f"{row.name} is left out: it needs {row.gpus} GPUs, here are {hardware.gpus}.", flush=True)
        for row, found in compare(there, arguments, environment):
            write(arguments.out, {**found, **facts(about)})
            failed += found["problem"] != ""
            told = found["problem"] or f"{found['ratio']:.2f} times as fast as {row.peer}"
            print(f"{row.name}: {told}", flush=True)
    return 1 if failed else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="names, with commas, those of one sitting with +; all of them are the default")
    parser.add_argument("--list", action="store_true", help="show the rows and time nothing")
    parser.add_argument("--repeats", type=int, default=3, help="of ours and the peer in turn")
    parser.add_argument("--steps", type=int, default=23, help="warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=8)
    parser.add_argument("--limit", type=int, default=LONGEST_S, help="seconds for one program")
    parser.add_argument("--seconds", type=float, help="no further turn begins behind so many")
    parser.add_argument("--runs", type=Path, help="file that gets a line of JSON for each run")
    parser.add_argument("--model", help="another one in each row, to try the programs")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "bench-gpu.csv")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of each sitting."""
    known = {row.name: row for row in ROWS}
    for names in arguments.rows.split(",") if arguments.rows else known:
        sitting = names.split("+")
        unknown = [name for name in sitting if name not in known]
        if unknown:
            raise SystemExit(f"there is no row {unknown[0]}; there are {', '.join(known)}")
        yield [replace(known[name], model=arguments.model or known[name].model) for name in sitting]


def compare(
    rows: list[Row], arguments: argparse.Namespace, environment: dict[str, str]
) -> list[tuple[Row, dict[str, Any]]]:
    """Every program of the rows in turn, and for each row the medians of ours and the peer."""
    programs: dict[tuple[Any, ...], tuple[Row, Any]] = {}
    for row in rows:
        programs.setdefault(row.ours, (row, measure_ours))
        programs.setdefault(row.theirs, (row, measure_peer))
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {key: [] for key in programs}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hpc-llm-bench-") as scratch:
        for turn in range(arguments.repeats):
            if turn and arguments.seconds and time.monotonic() - began > arguments.seconds:
                break
            for number, (key, (row, measure)) in enumerate(programs.items()):
                if any("problem" in one for one in runs[key]):
                    continue  # it would fail again
                started = time.monotonic()
                found = measure(row, arguments, Path(scratch) / f"{turn}-{number}", environment)
                runs[key].append(found)
                keep(arguments.runs, row, "ours" if measure is measure_ours else row.peer, turn, started, found)
    return [(row, {**described(row), **joined(runs[row.ours], runs[row.theirs])}) for row in rows]


def joined(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one row, from the turns in which neither failed."""
    pairs = list(zip(ours, theirs, strict=False))
    whole = [pair for pair in pairs if not any("problem" in one for one in pair)]
    problem = ""
    for who, runs in (("ours", ours), ("peer", theirs)):
        problem = problem or next((f"{who}: {one['problem']}" for one in runs if "problem" in one), "")
    return {**summary([one for one, _ in whole], [one for _, one in whole]), "repeats": len(whole), "problem": problem}


def keep(path: Path | None, row: Row, who: str, turn: int, started: float, found: dict[str, Any]) -> None:
    """Write a run down as soon as it is over."""
    took = round(time.monotonic() - started, 1)
    told = found.get("problem") or f"{found['step_ms']:.1f} ms, first step after {found.get('first_step_s') or 0:.1f} s"
    print(f"  turn {turn + 1}, {row.name}, {who}: {told}, {took} s in all", flush=True)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"row": row.name, "who": who, "turn": turn + 1, "took_s": took, **found}) + "\n")


def described(row: Row) -> dict[str, Any]:
    shape = {"micro_batch_size": row.micro_batch_size, "sequence_length": row.sequence_length}
    what = {"row": row.name, "method": row.method, "model": row.model, "gpus": row.gpus, "peer": row.peer}
    return {**what, **shape, "settings": " ".join(row.settings)}


def summary(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of both; nothing where nothing was measured."""
    if not ours:
        return {}
    found: dict[str, Any] = {
        "ours_loss": ours[-1]["loss"],
        "peer_loss": theirs[-1].get("loss_last", theirs[-1].get("loss_mean")),
        "ours_fused": " ".join(ours[-1]["fused"]),
        "ours_adaptations": " ".join(ours[-1]["adaptations"]),
    }
    for key in ("step_ms", "allocated_gib", "reserved_gib", "first_step_s"):
        for who, runs in (("ours", ours), ("peer", theirs)):
            # The first run of either compiles what the later ones find in caches.
            counted = runs[1:] if key == "first_step_s" and len(runs) > 1 else runs
            values = [one[key] for one in counted if one[key] is not None]
            found[f"{who}_{key}"] = round(statistics.median(values), 3) if values else ""
    found["ratio"] = found["peer_step_ms"] / found["ours_step_ms"]
    return found


def planned(row: Row, arguments: argparse.Namespace) -> Plan:
    hardware = detect()
    asked = Experiment(
        cluster="local",
        method=row.method,
        model=row.model,
        gpus_per_node=row.gpus if hardware.gpus else None,
        micro_batch_size=row.micro_batch_size,
        sequence_length=row.sequence_length,
        steps=arguments.steps,
        warmup_steps=arguments.warmup_steps,
        set=row.settings,
    )
    return plan(asked, load_cluster("local"), load_method(row.method), Site(scheduler="local", hardware=hardware)).plan


def measure_ours(row: Row, arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """One run of the worker as a job starts it."""
    paths = RunPaths(folder)
    paths.root.mkdir()
    asked = planned(row, arguments)
    made = asked.to_dict()
    write_json(paths.experiment, {"schema": 1, "run_id": paths.run_id, "plan": made})
    threads = asked.job.cpus_per_task
    environment = {**environment, **({"OMP_NUM_THREADS": str(threads)} if threads else {}), **asked.job.env}
    own = environment if row.gpus > 1 else {**environment, "HPC_LLM_LAUNCHER": "python"}
    command = [*start(row), "-m", "hpc_llm.worker.pretrain_llm", "--run-dir", str(paths.root)]
    began = time.time()
    said = ended(command, own, arguments.limit)
    result = read_json(paths.result) or {}
    if result.get("step_time_s_p50") is None or result.get("outcome") not in ("COMPLETED", "INVALID"):
        return {"problem": str(result.get("outcome_reason") or said.get("problem") or "it left no result")}
    return {
        "step_ms": 1e3 * result["step_time_s_p50"],
        "allocated_gib": in_gib(result["peak_allocated_bytes"]),
        "reserved_gib": in_gib(result["peak_reserved_bytes"]),
        "first_step_s": next((line["time"] - began for line in read_json_lines(paths.steps)), None),
        "loss": result["loss_last"],
        "fused": result["fused"],
        "adaptations": result["adaptations"],
    }


def measure_peer(row: Row, arguments: argparse.Namespace, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    shape = architecture(row.model)
    if not isinstance(shape, Architecture):
        return {"problem": f"the peers know Llama's kind alone, and {row.model} is none"}
    folder.mkdir()
    config = folder / "llama.json"
    config.write_text(json.dumps(shape.config_values()))
    program, *switches = row.peer.split()
    flags = ["--micro-batch-size", row.micro_batch_size, "--sequence-length", row.sequence_length]
    steps, warmup = row.peer_steps or (arguments.steps, arguments.warmup_steps)
    flags += ["--steps", steps, "--warmup-steps", warmup, "--model-config", config]
    began = time.time()
    found = ended([*start(row), str(PEERS / program), *map(str, flags), *switches], environment, arguments.limit)
    return found if "problem" in found else {**found, "first_step_s": found["first_step_at"] - began}


def start(row: Row) -> list[str]:
    """What stands before a program that all GPUs of the row run."""
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(row.gpus)]
    return [sys.executable, *(many if row.gpus > 1 else [])]


def ended(command: list[str], environment: dict[str, str], limit: int) -> dict[str, Any]:
    """The result that a program prints; why there is none as `problem`."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    is_peer = str(PEERS) in command[-1] or any(part.startswith(str(PEERS)) for part in command)
    own = {**alone, **environment} if is_peer and "torch.distributed.run" not in command else environment
    if is_peer:  # one thread is what torchrun gives else, and an optimizer on the host is ten times slower with it
        own = {"OMP_NUM_THREADS": str(max(1, detect().cpus // 2)), **own}
    try:
        done = run(command, own, limit)
    except subprocess.TimeoutExpired:
        return {"problem": f"no end within {limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        return {"problem": " ".join(done.stderr.split())[-SHOWN:] or f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


def free_port() -> str:
    """One of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def in_gib(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / GIB


def facts(about: dict[str, Any]) -> dict[str, str]:
    versions = " ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "device": about["device"] or "CPU",
        "versions": versions,
        "commit": told.stdout.strip(),
        "command": shlex.join(["python", *sys.argv]),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }


def write(path: Path, row: dict[str, Any]) -> None:
    """Add a line to the file; one without a head gets it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists() or os.path.getsize(path) == 0
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    raise SystemExit(main())
