"""What ten thousand ended runs cost each command: CPU seconds and largest memory, through the console script.

    python benchmarks/scale.py [--runs N] [--keep DIR] [--only COMMAND]

Six in ten runs completed, the others ended in every other way, with small logs as such runs leave. Each command runs once,
the first time that anything looks at the folders. Prints a table and one line of JSON; exits 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from hpc_llm.records.run import RunPaths

HPC_LLM = str(Path(sys.executable).with_name("hpc-llm"))
REQUEST = [
    "--cluster=taiwania2",
    "--method=z3",
    "--model=llama2-7b",
    "--account=ACD110018",
    "--steps=60",
    "--time=01:00:00",
]
RUNS = 10_000
MIB = 1 << 20
BEGAN = 1_780_000_000.0
STEPS = 60


@dataclass(frozen=True)
class Limit:
    """What a command may take for 10 000 runs."""

    cpu_s: float
    memory_mib: float | None


LIMITS = {
    "status": Limit(6.0, 150.0),
    "parse": Limit(10.0, None),
    "diagnose": Limit(20.0, None),
    "report": Limit(60.0, 500.0),
}


@dataclass(frozen=True)
class Figure:
    command: str
    runs: int
    cpu_s: float
    memory_mib: float
    limit: Limit

    @property
    def holds(self) -> bool:
        fits = self.limit.memory_mib is None or self.memory_mib <= self.limit.memory_mib
        start_up = 0.0 if self.runs >= RUNS else 1.0  # of a few runs it is most of the time
        return fits and self.cpu_s <= self.limit.cpu_s * self.runs / RUNS + start_up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Make the runs there, or use those that are there.")
    parser.add_argument("--only", choices=LIMITS, action="append", metavar="COMMAND")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = given.keep or Path(folder)
        logs = work / "logs"
        if not logs.exists():
            make(logs, given.runs)
        figures = [measure(name, logs, work, given.runs) for name in given.only or LIMITS]
    for one in figures:
        limit = f"{one.limit.cpu_s:g} s" + (f", {one.limit.memory_mib:g} MiB" if one.limit.memory_mib else "")
        print(f"{one.command:<10} {one.cpu_s:7.2f} s CPU {one.memory_mib:7.0f} MiB   (limit for {RUNS}: {limit})")
    print(json.dumps([asdict(one) for one in figures]))
    return 0 if all(one.holds for one in figures) else 1


def measure(name: str, logs: Path, work: Path, runs: int) -> Figure:
    words = {
        "status": ["status", "--logs", str(logs)],
        "parse": ["parse", "--format=csv", str(logs)],
        "diagnose": ["diagnose", "--json", str(logs)],
        "report": ["report", str(logs), "-o", str(work / "report")],
    }[name]
    with (work / f"{name}.out").open("wb") as out, (work / f"{name}.err").open("wb") as err:
        process = subprocess.Popen([HPC_LLM, *words], stdout=out, stderr=err)
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode != 0:
        raise SystemExit(f"hpc-llm {name} failed: {(work / f'{name}.err').read_text()[-500:]}")
    return Figure(name, runs, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MIB, LIMITS[name])


# Runs as they are left behind


def make(logs: Path, count: int) -> None:
    """Write `count` ended runs."""
    rendered = json.loads(
        subprocess.run([HPC_LLM, "render", "--json", *REQUEST], check=True, capture_output=True).stdout
    )
    chance = random.Random(1)
    names = list(ENDINGS)
    for number in range(count):
        began = BEGAN + 60 * number
        moment = datetime.fromtimestamp(began, timezone.utc)
        run = RunPaths(logs / f"{moment:%Y%m%d-%H%M%S}-taiwania2-z3-llama2-7b-{number:05}")
        run.root.mkdir(parents=True)
        made = Made(
            run,
            number,
            began,
            {**rendered["plan"], "workload": {**rendered["plan"]["workload"], "seed": chance.randrange(4)}},
            chance,
        )
        made.begin(rendered["script"])
        ENDINGS["completed" if chance.random() < 0.6 else chance.choice(names[1:])](made)


@dataclass(frozen=True)
class Made:
    """One run that is written."""

    run: RunPaths
    number: int
    began: float
    plan: dict[str, Any]
    chance: random.Random

    def begin(self, script: str) -> None:
        run_id, job_id = self.run.run_id, str(100_000 + self.number)
        origins = dict.fromkeys(self.plan, "cluster taiwania2")
        head = {"schema": 1, "run_id": run_id, "plan": self.plan, "origins": origins, "notices": []}
        self.write(self.run.experiment, {**head, "versions": {"hpc_llm": "0.2.0"}, "git_commit": "0" * 40})
        submitted = {"scheduler": "slurm", "job_id": job_id, "array_task": None, "job_name": "z3-0a1b2c3d"}
        at = (datetime.fromtimestamp(self.began, timezone.utc) - timedelta(seconds=5)).isoformat()
        self.write(self.run.submission, {"schema": 1, **submitted, "submitted_at": at})
        self.run.script.write_text(script)
        started = {
            "schema": 1,
            "job_id": job_id,
            "array_task": None,
            "cluster": "t2",
            "host": "gn1",
            "restart_count": 0,
        }
        self.run.started.write_text(json.dumps({**started, "time": self.began}) + "\n")
        self.run.stdout.write_text("hpc-llm: gn1, /envs/one/bin/python, modules cuda/12\n")
        self.run.stderr.write_text("gn1: some library says that something is deprecated\n" * 20)

    def steps(self, count: int = STEPS) -> None:
        lines, text = [], []
        for step in range(1, count + 1):
            loss, time = 10.5 - step / 20, 0.5 + self.chance.random() / 50
            rates = {"tokens_per_second": 700 / time, "learning_rate": 1e-4, "grad_norm": 1.5, "warmup": step <= 5}
            sizes = {"allocated_bytes": 1 << 33, "peak_allocated_bytes": 1 << 34, "skipped": False}
            lines.append(
                json.dumps({"step": step, "loss": loss, "step_time_s": time, **rates, **sizes, "time": self.began})
            )
            text.append(
                f"[Step {step}/{STEPS}] Loss: {loss:.4f} | Global Tokens/s: 1400.00 | GPU Mem (GB): 8.00 | Peak Mem: 16.00"
            )
        self.run.steps.write_text("\n".join(lines) + "\n")
        with self.run.stdout.open("a") as file:
            file.write("\n".join(text) + "\n")

    def result(self, outcome: str, reason: str | None = None) -> None:
        times = [0.5 + self.chance.random() / 50 for _ in range(STEPS - 5)]
        rates = {"tokens_per_second": 1400.0 + self.chance.random(), "tokens_per_second_per_gpu": 700.0, "mfu": 0.04}
        means = {"step_time_s_mean": 0.5, "step_time_s_p50": 0.5, "step_time_s_p90": 0.52, "step_times_s": times}
        memory = {"peak_allocated_bytes": 1 << 34, "peak_reserved_bytes": 1 << 34, "peak_host_bytes": 1 << 33}
        self.write(
            self.run.result,
            {
                "schema": 1, "gpu": "Tesla V100-SXM2-32GB", "num_parameters": 6738415616, "world_size": 2, "warmup_steps": 5,
                "measured_steps": STEPS - 5, **rates, **means, **memory, "loss_first": 10.45, "loss_last": 7.5,
                "elapsed_s": 100.0, "outcome": outcome, "outcome_reason": reason, "started_at": "2026-06-01T00:00:00+00:00",
                "invalid_reason": reason if outcome == "INVALID" else None, "versions": {"torch": "2.4.0"}, "adaptations": [],
            },
        )  # fmt: skip

    def exit(self, code: int, signal: str | None = None, stage: str = "done", reason: str | None = None) -> None:
        ended = {"exit_code": code, "signal": signal, "stage": stage, "reason": reason, "host": "gn1"}
        times = {"started_at": self.began, "ended_at": self.began + 1000, "time_limit_s": 3600, "restart_count": 0}
        self.write(
            self.run.exit, {"schema": 1, **ended, **times, "job_id": str(100_000 + self.number), "array_task": None}
        )

    def failure(self, rank: int, kind: str, message: str, outcome: str) -> None:
        frames = "".join(
            f'  File "/envs/lib/python3.11/site-packages/torch/m{k}.py", line {k}, in f{k}\n    g(x)\n'
            for k in range(25)
        )
        text = f"Traceback (most recent call last):\n{frames}{kind}: {message}\n"
        about = {"rank": rank, "local_rank": rank, "host": "gn1", "time": self.began + 90, "attempt": "0", "type": kind}
        self.write(self.run.failure(rank), {**about, "message": message, "traceback": text, "outcome": outcome})
        self.says(text.replace("\n", f"\n[rank{rank}]: "))

    def says(self, text: str) -> None:
        with self.run.stderr.open("a") as file:
            file.write(text + "\n")

    @staticmethod
    def write(path: Path, record: dict[str, Any]) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def _completed(made: Made) -> None:
    made.steps()
    made.result("COMPLETED")
    made.exit(0)


def _device_oom(made: Made) -> None:
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.74 GiB of which 1.00 GiB is free."
    for rank in range(2):
        made.failure(rank, "OutOfMemoryError", message, "OOM_DEVICE")
    made.result("OOM_DEVICE", f"rank 0: OutOfMemoryError: {message}")
    made.exit(1)


def _failed(made: Made) -> None:
    made.steps(20)
    made.failure(1, "ValueError", "bad batch", "FAILED")
    made.failure(0, "RuntimeError", "Connection closed by peer", "FAILED")
    made.result("FAILED", "rank 1: ValueError: bad batch")
    made.exit(1)


def _timeout(made: Made) -> None:
    made.steps(40)
    made.failure(0, "SIGTERM", "stopped by SIGTERM after step 40 of 60: time limit, cancel or preemption", "UNKNOWN")
    made.says("slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-06-01T00:00:00 DUE TO TIME LIMIT ***")
    made.exit(143, "TERM", "launch")


def _cancelled(made: Made) -> None:
    made.steps(10)
    made.write(made.run.cancelled, {"schema": 1, "requested_at": "2026-06-01T00:00:00+00:00"})
    made.exit(143, "TERM", "launch")


def _host_oom(made: Made) -> None:
    made.says(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    )
    made.exit(137)


def _stopped(made: Made) -> None:
    made.says("hpc-llm: module cuda/13 failed to load (on gn1)")
    made.exit(72, None, "prelude", "module cuda/13 failed to load")


def _preempted(made: Made) -> None:
    made.steps(30)
    made.says("slurmstepd: error: *** JOB 7 ON gn1 CANCELLED AT 2026-06-01T00:00:00 DUE TO PREEMPTION ***")
    made.exit(143, "TERM", "launch")


def _node_lost(made: Made) -> None:
    made.steps(30)
    made.says("srun: error: Node failure on gn1")


def _invalid(made: Made) -> None:
    made.steps(6)
    made.result("INVALID", "1 steps were measured, at least 3 are needed")
    made.exit(0)


def _crashed(made: Made) -> None:
    made.steps(6)
    made.says("Fatal Python error: Segmentation fault\n" + "  File x in y\n" * 20)
    made.exit(139)


def _silent(made: Made) -> None:
    made.exit(3)


ENDINGS: dict[str, Callable[[Made], None]] = {
    "completed": _completed, "device_oom": _device_oom, "failed": _failed, "timeout": _timeout, "cancelled": _cancelled,
    "host_oom": _host_oom, "stopped": _stopped, "preempted": _preempted, "node_lost": _node_lost, "invalid": _invalid,
    "crashed": _crashed, "silent": _silent,
}  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main())
