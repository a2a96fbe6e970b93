"""What methods need and take on this machine's GPUs, one row of a CSV a run: the points by which estimates are judged.

    python benchmarks/points.py --csv points.csv --seconds 540 --list points.txt
    python benchmarks/points.py --csv points.csv --seconds 540 [--methods z3,z2o,…] [--models …] [--engines …] [--batches 1x350]

Each run is hpc-llm's own worker in a fresh process with a few steps; its row holds the plan's and the result's figures, and its
outcome where it did not complete. Combinations that the file holds already are left out, so that a file grows over several
sessions on several machines. Needs what `methods_on_gpu.py` needs.

Device time is short: the processes of coming runs import their libraries while others run (`gate.py`: nothing on the GPU
before it is their turn), runs of one GPU go side by side where there are several, and operators are compiled meanwhile.
A list holds lines `ENGINE GPUS MODEL METHOD BATCHxLENGTH[,BATCHxLENGTH…] [TIMEOUT_S [SETTING…]]`. A row's `switches` are what the plan
had on for the engine; rows without are of runs that had nothing fused, recorded or compiled, and units of one layer. Rows without a
peak are of runs whose graph was counted twice: they are made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from estimate_accuracy import apart
from methods_on_gpu import ABOUT_THE_DEVICE, ROOT, compile_operators, end_tree, last_lines, run

from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.experiment import Experiment, Plan
from hpc_llm.planning.method import load_method
from hpc_llm.planning.plan import Site, plan
from hpc_llm.records.files import read_json, write_json
from hpc_llm.records.run import RunPaths
from hpc_llm.site.cluster import load_cluster
from hpc_llm.site.hardware import Hardware, detect

MODELS = ("llama3.2-1b", "llama3.2-3b", "llama2-7b")
METHODS = ("z3", "q", "lora", "qlora", "z2o", "z3o", "ddp", "z3+r", "q+r", "qlora+r", "z2o+r", "z3o+r")
BATCHES = "1x350,1x2048,8x350,4x2048,8x2048"
KEY = ("gpu", "num_gpus", "engine", "model", "method", "micro_batch_size", "sequence_length", "settings")
AHEAD = 3
"""Runs whose processes wait for their turn, for each GPU that can be given on its own."""


@dataclass
class Job:
    """One run, from the list to its row."""

    asked: dict[str, Any]
    timeout: float
    planned: Plan | None = None
    gpus: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    folder: Path = Path()
    began: float = 0.0
    """When it got its turn."""
    made: float = 0.0
    company: bool = False
    used_before: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        asked = self.asked
        shape = f"{asked['micro_batch_size']}x{asked['sequence_length']}"
        return f"{asked['engine']} {asked['num_gpus']} {asked['model']} {asked['method']} {shape}"

    @property
    def offloads(self) -> bool:
        return re.match(r"z[123](o|.*\+o\b)", self.asked["method"]) is not None

    @property
    def compiles(self) -> bool:
        return bool(self.asked["engine"] == "deepspeed" and self.asked["method"].split("+")[0] != "q")

    @property
    def need(self) -> float:
        """Seconds without which it is not begun."""
        return 0.7 * self.timeout if self.timeout > 120 else 18.0

    @property
    def ready(self) -> bool:
        ranks = max(1, self.planned.parallel.world_size if self.planned else 1)
        return all((self.folder / f"ready-{rank}").exists() for rank in range(ranks))


def main() -> int:
    arguments = read_arguments()
    with tempfile.TemporaryDirectory(prefix="hpc-llm-points-") as scratch:
        bench = Bench(arguments, Path(scratch))
        try:
            bench.run()
        finally:
            bench.end()
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540.0, help="for all runs together")
    parser.add_argument("--list", type=Path, help="lines that say what is to run, instead of the following")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--engines", default="deepspeed")
    parser.add_argument("--batches", default=BATCHES)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=100.0, help="seconds for one run")
    parser.add_argument("--steps", type=int, default=8, help="warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=3)
    return parser.parse_args()


def wanted(arguments: argparse.Namespace) -> Iterator[Job]:
    """All jobs, in the order of the list, or each batch shape for all methods and models before the next."""
    if arguments.list:
        for line in arguments.list.read_text(encoding="utf-8").splitlines():
            words = line.partition("#")[0].split()
            for shape in words[4].split(",") if words else ():
                timeout = float(words[5]) if len(words) > 5 else arguments.timeout
                yield make_job(words[0], int(words[1]), words[2], words[3], shape, timeout, " ".join(words[6:]))
        return
    names = (arguments.methods.split(","), arguments.models.split(","), arguments.engines.split(","))
    for shape, method, model, engine in product(arguments.batches.split(","), *names):
        yield make_job(engine, arguments.gpus, model, method, shape, arguments.timeout)


def make_job(engine: str, gpus: int, model: str, method: str, shape: str, timeout: float, settings: str = "") -> Job:
    batch, length = map(int, shape.split("x"))
    asked = {"engine": engine, "num_gpus": gpus, "model": model, "method": method, "settings": settings}
    return Job({**asked, "micro_batch_size": batch, "sequence_length": length}, timeout)


class Bench:
    """The machine, what waits for it and what runs on it."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self.arguments = arguments
        self.scratch = scratch
        self.began = time.monotonic()
        self.deadline = self.began + arguments.seconds
        self.hardware = detect()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
        if self.hardware.arch:
            digits = self.hardware.arch.removeprefix("sm_")
            self.environment["TORCH_CUDA_ARCH_LIST"] = f"{digits[:-1]}.{digits[-1]}"
        self.rows = read_rows(arguments.csv)
        unknown = [row for row in self.rows if row["outcome"] == "COMPLETED" and not row["peak_allocated_bytes"]]
        done = {tuple(str(row.get(name) or "") for name in KEY) for row in self.rows if row not in unknown}
        self.queue: list[Job] = []
        for job in wanted(arguments):
            key = tuple(str({"gpu": self.hardware.gpu_model, **job.asked}[name]) for name in KEY)
            if key not in done:
                done.add(key)
                self.queue.append(job)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.machine: dict[str, Any] = {"gpu": self.hardware.gpu_model}
        self.compiled = threading.Event()
        self.lanes = int(os.environ.get("POINTS_LANES") or max(self.hardware.gpus, 1))

    def run(self) -> None:
        self.say(f"{len(self.queue)} runs on {self.hardware}")
        about = threading.Thread(target=self.ask_versions)
        about.start()
        threading.Thread(target=self.compile, daemon=True).start()
        while (self.queue or self.waiting or self.running) and time.monotonic() < self.deadline:
            self.reap(about)
            self.dispatch()
            self.start_ahead()
            time.sleep(0.02)
        self.say(f"over: {len(self.queue) + len(self.waiting)} not begun, cut off: {[j.name for j in self.running]}")

    def end(self) -> None:
        for job in [*self.waiting, *self.running]:
            kill(job)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.0f} {text}", file=sys.stderr, flush=True)

    def ask_versions(self) -> None:
        text = run([sys.executable, "-c", ABOUT_THE_DEVICE], self.environment, 120).stdout.splitlines()[-1]
        about = json.loads(text)
        self.machine = {"gpu": about["device"], **about["versions"]}
        self.say(f"machine {self.machine}")

    def compile(self) -> None:
        if any(job.compiles for job in self.queue) and self.hardware.arch:
            compile_operators(self.environment)
            self.say("operators compiled")
        self.compiled.set()

    def start_ahead(self) -> None:
        """Start processes of the next jobs; they import, and wait."""
        if any(job.offloads for job in self.running):
            return
        for job in list(self.queue):
            left = self.deadline - time.monotonic()
            if job.asked["num_gpus"] > 1 or self.lanes == 1:
                if len(self.waiting) >= AHEAD:
                    return
                gpus = tuple(range(max(job.asked["num_gpus"], 1)))
            else:
                many = [sum(gpu in other.gpus for other in self.waiting) for gpu in range(self.lanes)]
                if min(many) >= AHEAD - 1 or len(self.waiting) >= AHEAD + 1:
                    return
                gpus = (many.index(min(many)),)
            if left < job.need + 5:
                continue  # a cheaper one may fit
            self.queue.remove(job)
            job.gpus = gpus
            try:
                self.start(job)
            except Exception as error:  # device time is short: one bad line must not end all
                self.say(f"{job.name}: {type(error).__name__}: {error}")
            return

    def start(self, job: Job) -> None:
        try:
            job.planned = make_plan(job.asked, self.hardware, self.arguments.steps, self.arguments.warmup_steps)
        except HpcLlmError as error:
            self.add(job, {"outcome": "REFUSED", "reason": str(error)})
            return
        job.folder = Path(tempfile.mkdtemp(dir=self.scratch))
        paths = RunPaths(job.folder / "run")
        write_json(paths.experiment, {"schema": 1, "run_id": "run", "plan": job.planned.to_dict()})
        launch = [str(Path(__file__).with_name("gate.py")), str(job.folder), ",".join(imports(job)), str(paths.root)]
        if job.planned.parallel.world_size > 1:
            torchrun = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={job.planned.parallel.world_size}",
            ]
            launch = [*torchrun, *launch]
        environment = {**self.environment, **job.planned.job.env, "HPC_LLM_LAUNCHER": job.planned.job.launcher}
        if job.asked["num_gpus"]:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, job.gpus))
        if job.planned.job.cpus_per_task:  # as the job script does
            environment["OMP_NUM_THREADS"] = str(job.planned.job.cpus_per_task)
        job.made = time.monotonic()
        with (job.folder / "out").open("wb") as out, (job.folder / "err").open("wb") as err:
            job.process = subprocess.Popen([sys.executable, *launch], env=environment, stdout=out, stderr=err)
        self.waiting.append(job)

    def dispatch(self) -> None:
        """Let those go whose turn it is: in order, but none waits for a compiler while another could run."""
        for job in list(self.waiting):
            if job.process and job.process.poll() is not None:
                self.waiting.remove(job)
                self.add(job, {"outcome": "FAILED", "reason": last_lines(read_text(job.folder / "err"))})
                continue
            if time.monotonic() - job.made > 150 and not job.ready:
                self.waiting.remove(job)
                self.say(f"{job.name}: not ready after 150 s: {last_lines(read_text(job.folder / 'err'))}")
                kill(job)
                continue
            if self.deadline - time.monotonic() < job.need:
                self.waiting.remove(job)
                self.say(f"{job.name}: no time left")
                kill(job)
                continue
            if job.compiles and not self.compiled.is_set():
                continue
            busy = {gpu for other in self.running for gpu in other.gpus}
            alone = job.offloads or any(other.offloads for other in self.running)
            if not job.ready or busy & set(job.gpus) or (alone and self.running):
                if len(job.gpus) > 1 or job.offloads:
                    return  # it must not starve
                continue
            self.waiting.remove(job)
            job.used_before = used_memory()
            job.began = time.monotonic()
            for other in self.running:
                other.company = job.company = True
            (job.folder / "go").touch()
            self.running.append(job)

    def reap(self, about: threading.Thread) -> None:
        for job in list(self.running):
            assert job.process
            code, took = job.process.poll(), time.monotonic() - job.began
            if code is None and took < job.timeout:
                continue
            self.running.remove(job)
            if code is None:
                kill(job)
            about.join()
            found = {"outcome": "TIMEOUT", "reason": f"not over after {job.timeout:.0f} s"}
            if code is not None:
                found = self.result_of(job, took)
            self.add(job, found)

    def result_of(self, job: Job, took: float) -> dict[str, Any]:
        result = read_json(RunPaths(job.folder / "run").result)
        result = result or {"outcome": "FAILED", "outcome_reason": last_lines(read_text(job.folder / "err"))}
        found = {k: v for k, v in result.items() if isinstance(v, (int, float, str)) and k not in job.asked}
        if result.get("engine") not in (None, job.asked["engine"]):
            found["reason"] = f"{result['engine']} ran instead"
        if result.get("adaptations"):
            self.say(f"  {job.name}: {result['adaptations']}")
        return {
            **found,
            "reason": found.get("reason") or str(result.get("outcome_reason") or "")[:200],
            "wall_s": round(took, 1),
        }

    def add(self, job: Job, found: dict[str, Any]) -> None:
        own = {
            "preloaded": 1,
            "omp_num_threads": job.planned.job.cpus_per_task if job.planned else None,
            "in_company": int(job.company),
            "switches": switches(job.planned) if job.planned else "",
        }
        self.rows.append({**self.machine, **job.asked, **found, **own})
        write_rows(self.arguments.csv, self.rows)
        line = " ".join(
            text.removeprefix("TIMELINE ")
            for text in read_text(job.folder / "err").splitlines()
            if text.startswith("TIMELINE ")
        )
        gib = round((found.get("peak_allocated_bytes") or 0) / 2**30, 2)
        rate = round(found.get("tokens_per_second") or 0)
        before = [round(used / 2**20) for used in job.used_before]
        self.say(f"{job.name}: {found['outcome']} {gib} GiB {rate}/s {found.get('wall_s')} s before {before} | {line}")
        if found["outcome"] not in ("COMPLETED",):
            self.say(f"  {found.get('reason')}")
        if job.folder != Path():
            shutil.rmtree(job.folder, ignore_errors=True)


def switches(planned: Plan) -> str:
    """What the plan's engine does and how it splits, as settings with blanks between."""
    found = asdict(planned.engine)
    own = {key: found[key] for key in found if key not in ("name", "module", "fallback", "deepspeed")}
    own["expandable_segments"] = "expandable_segments:True" in planned.job.env.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return " ".join(f"{key}={json.dumps(value)}".replace('"', "") for key, value in own.items())


def imports(job: Job) -> list[str]:
    """What the worker will import, as far as that leaves the GPU alone."""
    names = ["torch", "torch.utils.cpp_extension", "transformers", "transformers.models.llama.modeling_llama"]
    if job.asked["engine"] == "deepspeed":
        names += ["transformers.integrations.deepspeed", "deepspeed"]
    if job.asked["engine"] == "fsdp2":
        names += ["torch.distributed.fsdp", "torch.distributed.device_mesh"]
    if job.asked["engine"] != "deepspeed" and job.asked["num_gpus"] > 1:
        names += ["torch.nn.parallel"]
    return names


def used_memory() -> list[int]:
    """Bytes in use on each GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles]
    except Exception:
        return []


def kill(job: Job) -> None:
    """End the launcher and all that it started."""
    if job.process is None or job.process.poll() is not None:
        return
    end_tree(job.process.pid)
    job.process.wait()
    time.sleep(0.5)


def make_plan(asked: dict[str, Any], hardware: Hardware, steps: int = 8, warmup_steps: int = 3) -> Plan:
    """What `hpc-llm submit --cluster local` would run here."""
    names = ("model", "micro_batch_size", "sequence_length")
    values: dict[str, Any] = {name: asked[name] for name in names}
    settings, options = apart(asked["settings"].split())
    experiment = Experiment(
        cluster="local",
        method=asked["method"],
        set=(f"engine={asked['engine']}", *settings),
        steps=steps,
        warmup_steps=warmup_steps,
        gpus_per_node=asked["num_gpus"],
        **values,
        **options,
    )
    site = Site(scheduler="local", hardware=hardware)
    return plan(experiment, load_cluster("local"), load_method(asked["method"]), site).plan


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


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
