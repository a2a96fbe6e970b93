"""The four methods on one GPU, hpc-llm's worker beside a plain DeepSpeed program with the same DeepSpeed config.

    python benchmarks/methods_on_gpu.py [--model llama3.2-1b] [--methods z2o,z3,z3o,q]

Needs torch, transformers, deepspeed and bitsandbytes, and what the login side of hpc-llm needs. Prints one Markdown table
and, as the last line, one JSON object with the device, the versions and the command. A method that fails is a row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hpc_llm.planning.experiment import Experiment, Plan  # noqa: E402
from hpc_llm.planning.method import load_method  # noqa: E402
from hpc_llm.planning.model import architecture  # noqa: E402
from hpc_llm.planning.plan import Site, plan  # noqa: E402
from hpc_llm.records.files import read_json, write_json  # noqa: E402
from hpc_llm.records.run import RunPaths  # noqa: E402
from hpc_llm.site.cluster import load_cluster  # noqa: E402
from hpc_llm.site.hardware import detect  # noqa: E402

METHODS = ("z2o", "z3", "z3o", "q")

ABOUT_THE_DEVICE = """
import json, platform, torch, importlib.metadata as m
gpu = torch.cuda.is_available()
packages = ("deepspeed", "transformers", "bitsandbytes", "accelerate")
versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
for package in packages:
    try:
        versions[package] = m.version(package)
    except m.PackageNotFoundError:
        versions[package] = None
print(json.dumps({
    "device": torch.cuda.get_device_name(0) if gpu else None,
    "capability": ".".join(map(str, torch.cuda.get_device_capability(0))) if gpu else None,
    "versions": versions,
}))
"""


@dataclass(frozen=True)
class Outcome:
    """What one program measured; `problem` says why it measured nothing."""

    numbers: dict[str, Any]
    problem: str | None = None


def main() -> int:
    arguments = read_arguments()
    began = time.monotonic()
    about, environment = prepare()
    rows = []
    with tempfile.TemporaryDirectory(prefix="hpc-llm-benchmark-") as scratch:
        for method in arguments.methods.split(","):
            rows.append(compare(method, arguments, Path(scratch), environment, began))
            print(f"{method} done after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
    record = {**about, "command": shlex.join(["python", *sys.argv]), "model": arguments.model, "rows": rows}
    print(json.dumps({**record, "elapsed_s": round(time.monotonic() - began, 1)}), flush=True)
    return 0


def prepare(compiles: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """What is known of the device and the versions, and the environment of the programs to be measured, operators compiled."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
    about = json.loads(run([sys.executable, "-c", ABOUT_THE_DEVICE], environment, 120).stdout.splitlines()[-1])
    if about["capability"]:
        environment["TORCH_CUDA_ARCH_LIST"] = about["capability"]
        if compiles:
            compile_operators(environment)
    return about, environment


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama3.2-1b", help="a Llama preset")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sequence-length", type=int, default=350)
    parser.add_argument("--steps", type=int, default=25, help="warm-up included")
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--budget", type=int, default=450, help="seconds for everything; what is left over is skipped")
    return parser.parse_args()


def run(command: Sequence[str], environment: dict[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """What it printed. Nothing of it is left where it takes longer: ranks that outlive their launcher keep the GPU's memory."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            end_tree(process.pid)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_tree(pid: int) -> None:
    """End a launcher and all that it started: torchrun's ranks are in sessions of their own."""
    with contextlib.suppress(psutil.Error):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                process.kill()


def compile_operators(environment: dict[str, str]) -> None:
    """Compile both Adams side by side, before anything is timed. A failure shows in the runs that need them."""
    builders = ("CPUAdamBuilder", "FusedAdamBuilder")
    program = "import sys; from deepspeed.ops import op_builder; getattr(op_builder, sys.argv[1])().load(verbose=False)"
    started = [
        subprocess.Popen([sys.executable, "-c", program, name], env=environment, stdout=subprocess.DEVNULL)
        for name in builders
    ]
    deadline = time.monotonic() + 200
    for process in started:
        try:
            process.wait(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def compare(
    method: str, arguments: argparse.Namespace, scratch: Path, environment: dict[str, str], began: float
) -> dict[str, Any]:
    """One row: ours, then the plain program."""
    planned = make_plan(method, arguments)
    row: dict[str, Any] = {"method": method}
    for name, program in (("ours", run_ours), ("plain", run_plain)):
        left = arguments.budget - (time.monotonic() - began)
        outcome = (
            Outcome({}, "skipped: no time left") if left < 15 else attempt(program, planned, scratch, environment, left)
        )
        row[name] = {**outcome.numbers, "problem": outcome.problem}
    rates = [row[name].get("tokens_per_second") for name in ("ours", "plain")]
    row["ratio"] = rates[0] / rates[1] if all(rates) else None
    return row


def attempt(program: Any, plan: Plan, scratch: Path, environment: dict[str, str], left: float) -> Outcome:
    try:
        outcome: Outcome = program(plan, scratch, environment, min(left, 150))
        return outcome
    except subprocess.TimeoutExpired as error:
        return Outcome({}, f"no end within {error.timeout:.0f} s")
    except (OSError, ValueError, KeyError) as error:
        return Outcome({}, f"{type(error).__name__}: {error}")


def run_ours(plan: Plan, scratch: Path, environment: dict[str, str], timeout: float) -> Outcome:
    paths = RunPaths(scratch / f"ours-{plan.method}")
    write_json(paths.experiment, {"schema": 1, "run_id": paths.run_id, "plan": plan.to_dict()})
    command = [sys.executable, "-m", "hpc_llm.worker.pretrain_llm", "--run-dir", str(paths.root)]
    done = run(command, {**environment, "HPC_LLM_LAUNCHER": "python"}, timeout)
    result = read_json(paths.result)
    if result is None or done.returncode != 0 or result["outcome"] != "COMPLETED":
        return Outcome({}, (result or {}).get("outcome_reason") or last_lines(done.stderr))
    keys = ("peak_allocated_bytes", "peak_device_bytes", "peak_host_bytes", "loss_first", "loss_last", "adaptations")
    tokens = plan.batch.global_batch_size * plan.batch.sequence_length
    numbers = {
        # Over the whole window, as the plain program measures; the worker's own figure leaves out what is between steps.
        "tokens_per_second": result["measured_steps"] * tokens / result["measured_window_s"],
        "tokens_per_second_of_steps": result["tokens_per_second"],
        "model_tflops_per_gpu": result["model_tflops_per_gpu"],
        **{key: result[key] for key in keys},
    }
    return Outcome(numbers)


def run_plain(plan: Plan, scratch: Path, environment: dict[str, str], timeout: float) -> Outcome:
    model_config, deepspeed_config = scratch / "model.json", scratch / f"{plan.method}.json"
    write_json(model_config, architecture(plan.model.name).config_values())
    write_json(deepspeed_config, plan.engine.deepspeed)
    command = [sys.executable, str(ROOT / "benchmarks" / "plain_deepspeed.py")]
    command += ["--model-config", str(model_config), "--deepspeed-config", str(deepspeed_config)]
    command += ["--sequence-length", str(plan.batch.sequence_length), "--seed", str(plan.workload.seed)]
    command += ["--steps", str(plan.workload.steps), "--warmup-steps", str(plan.workload.warmup_steps)]
    done = run([*command, *(["--nf4"] if plan.model.quantization else [])], environment, timeout)
    if done.returncode != 0:
        return Outcome({}, last_lines(done.stderr))
    return Outcome(json.loads(done.stdout.splitlines()[-1]))


def last_lines(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[-3:])[-400:]


def make_plan(method: str, arguments: argparse.Namespace) -> Plan:
    """What `hpc-llm submit --cluster local` would run here."""
    experiment = Experiment(
        cluster="local",
        method=method,
        model=arguments.model,
        gpus_per_node=None,
        micro_batch_size=1,
        sequence_length=arguments.sequence_length,
        steps=arguments.steps,
        warmup_steps=arguments.warmup_steps,
    )
    site = Site(scheduler="local", hardware=detect())
    return plan(experiment, load_cluster("local"), load_method(method), site).plan


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown; GiB is 2**30 bytes."""
    head = "| method | program | tokens/s | peak allocated GiB | loss first | loss last | ours / plain |"
    lines = [head, "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        for name in ("ours", "plain"):
            lines.append(table_line(row, name))
    return "\n".join(lines)


def table_line(row: dict[str, Any], name: str) -> str:
    numbers = row[name]
    if numbers["problem"]:
        return f"| {row['method']} | {name} | {numbers['problem'].replace('|', '/')} | | | | |"
    peak = numbers["peak_allocated_bytes"]
    cells = [
        f"{numbers['tokens_per_second']:.0f}",
        "" if peak is None else f"{peak / 2**30:.2f}",
        f"{numbers['loss_first']:.3f}",
        f"{numbers['loss_last']:.3f}",
        f"{row['ratio']:.2f}" if row["ratio"] and name == "ours" else "",
    ]
    return f"| {row['method']} | {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
