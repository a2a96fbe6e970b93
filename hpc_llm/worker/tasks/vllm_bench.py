"""vLLM's own benchmark of latency as a program of the site: it is started, and its JSON becomes the run's result.

It answers one batch after the other, each prompt and each answer of one length, so its figures stand beside those of our own decoder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hpc_llm.errors import WorkerError
from hpc_llm.planning.experiment import Plan
from hpc_llm.records import metrics
from hpc_llm.records.run import Outcome
from hpc_llm.worker.model.files import check_kept, files_of
from hpc_llm.worker.result import Record, build_result

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_LATENCY = ("mean", "p50", "p90", "p99")


def train(record: Record) -> None:
    """Run the benchmark of the plan of `record`, and write result.json. Errors are the caller's to report."""
    program = shutil.which("vllm")
    if program is None:
        raise WorkerError("the program vllm is not on PATH: load the module, or the environment, that brings it.")
    if record.plan.model.weights == "checkpoint":
        check_kept(record.plan.model.name, files_of(record.plan.model.name))
    record.engine, record.versions = "vllm", {"vllm": _output([program, "--version"])}
    gpus = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) if shutil.which("nvidia-smi") else None
    record.hardware = {"gpu": gpus.splitlines()[0].strip() if gpus else None}
    command = [program, *arguments(record.plan, record.paths.vllm)]
    print(f"{record.program}: {' '.join(command)}", flush=True)
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        raise WorkerError(f"`vllm bench latency` ended with {code}: what it said stands above, in log.out and log.err.")
    times = _times(record.paths.vllm)
    result = {**build_result(record, Outcome.COMPLETED, None), **figures(record.plan, times)}
    record.write(record.paths.result, result | _judged(record, len(times)))


def arguments(plan: Plan, output: Path) -> list[str]:
    """The words behind `vllm`."""
    work, model = plan.inference, plan.model
    quantized = ["--quantization=bitsandbytes"] if model.quantization else []
    random = ["--load-format=dummy", "--skip-tokenizer-init"] if model.weights == "random" else []
    return [
        "bench",
        "latency",
        f"--model={model.name}",
        f"--dtype={_DTYPES[model.precision]}",
        f"--tensor-parallel-size={max(plan.parallel.gpus_per_node, 1)}",
        f"--batch-size={plan.batch.micro_batch_size}",
        f"--input-len={work.prompt_tokens}",
        f"--output-len={work.new_tokens}",
        f"--num-iters-warmup={work.warmup_steps}",
        f"--num-iters={work.steps - work.warmup_steps}",
        f"--seed={work.seed}",
        *quantized,
        *random,
        f"--output-json={output}",
    ]


def figures(plan: Plan, times: list[float]) -> dict[str, Any]:
    """The keys of result.json from the seconds of each batch, whose queries all end together."""
    work, batch, gpus = plan.inference, plan.batch.micro_batch_size, max(plan.parallel.gpus_per_node, 1)
    total, queries = sum(times), batch * len(times)
    prompt, generated = queries * (work.prompt_tokens or 0), queries * work.new_tokens
    mean = metrics.mean(times)
    spread = [mean, *(metrics.percentile(times, percent) for percent in (50, 90, 99))]
    return {
        "measured_steps": len(times),
        "step_times_s": times,
        **{f"step_time_s_{name}": value for name, value in zip(_LATENCY[:3], spread, strict=False)},
        **{f"latency_s_{name}": value for name, value in zip(_LATENCY, spread, strict=True)},
        "total_queries": queries,
        "total_time_s": total,
        "prompt_tokens": prompt,
        "generated_tokens": generated,
        "prompt_tokens_per_second": prompt / total,
        "generated_tokens_per_second": generated / total,
        "prompt_and_generated_tokens_per_second": (prompt + generated) / total,
        "tokens_per_second": (prompt + generated) / total,
        "tokens_per_second_per_gpu": (prompt + generated) / total / gpus,
        "queries_per_second": queries / total,
    }


def _judged(record: Record, measured: int) -> dict[str, Any]:
    """How the run is listed: the other tasks' rules, held to what was measured."""
    why = metrics.invalid_reason(
        measured_steps=measured,
        losses=[],
        world_size=record.ranks.world_size,
        planned_world_size=record.plan.parallel.world_size,
        gpu=record.hardware.get("gpu"),
        expected_gpu=record.plan.gpu.model if record.hardware.get("gpu") else None,
    )
    outcome = Outcome.INVALID if why else Outcome.COMPLETED
    return {"outcome": outcome.value, "outcome_reason": why, "invalid_reason": why}


def _times(path: Path) -> list[float]:
    """The seconds of the measured batches. Raises WorkerError where the file holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["latencies"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkerError(f"`vllm bench latency` left no latencies in {path.name}: {error}.") from error
    times = (
        [float(one) for one in found if isinstance(one, (int, float)) and one > 0] if isinstance(found, list) else []
    )
    if not times:
        raise WorkerError(f"`vllm bench latency` left no latencies in {path.name}.")
    return times


def _output(command: list[str]) -> str | None:
    """What a command prints; None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
