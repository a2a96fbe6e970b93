"""vLLM's benchmark as a program of the site: what it is started with, its JSON as a run's result, and what it is not asked for.

The stand-in takes the options of `vllm bench latency` and writes its file: `avg_latency`, `latencies`, `percentiles`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hpc_llm
from hpc_llm.errors import HpcLlmError
from hpc_llm.planning.model import PRESETS
from hpc_llm.records.files import read_json
from hpc_llm.records.run import RunPaths

VLLM = """\
#!{python}
import argparse, json, sys
if sys.argv[1:] == ["--version"]:
    print("0.11.0")
    sys.exit()
assert sys.argv[1:3] == ["bench", "latency"], sys.argv
parser = argparse.ArgumentParser()
for name in ("input-len", "output-len", "batch-size", "num-iters", "num-iters-warmup", "tensor-parallel-size", "seed"):
    parser.add_argument("--" + name, type=int)
for name in ("model", "dtype", "output-json", "load-format", "quantization"):
    parser.add_argument("--" + name)
parser.add_argument("--skip-tokenizer-init", action="store_true")
asked = parser.parse_args(sys.argv[3:])
if asked.batch_size > 8:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.36 GiB")
latencies = [0.5 + 0.01 * n for n in range(asked.num_iters)]
with open(asked.output_json, "w") as file:
    percentiles = {{str(p): latencies[int(p * (len(latencies) - 1) / 100)] for p in (10, 25, 50, 75, 90, 99)}}
    json.dump({{"avg_latency": sum(latencies) / len(latencies), "latencies": latencies, "percentiles": percentiles}}, file, indent=4)
print("Avg latency: %s seconds" % (sum(latencies) / len(latencies)))
"""
ASKED = (
    "submit", "--cluster", "local", "--task", "infer", "--method", "ddp", "--model", "./shape", "--set", "weights=random", "--set",
    "engine=vllm", "--set", "prompt_tokens=24", "--set", "new_tokens=16", "--steps", "6", "--warmup-steps", "2", "--wait",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shape").mkdir()
    config = {**PRESETS["tiny"].config_values(), "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "shape" / "config.json").write_text(json.dumps(config))
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(VLLM.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


def submit(folder: Path, *more: str, path: str = "bin") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PATH": f"{folder / path}:{os.environ['PATH']}"}
    command = [str(Path(sys.executable).with_name("hpc-llm")), *ASKED, *more]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)


def test_its_file_is_the_result_of_a_run_of_inference(folder: Path) -> None:
    done = submit(folder, "--run-id", "one", "--micro-batch-size", "4")
    assert done.returncode == 0, done.stderr
    run = RunPaths(folder / "logs" / "one")
    result: dict[str, Any] = read_json(run.result) or {}
    assert (result["engine"], result["versions"]) == ("vllm", {"vllm": "0.11.0"})
    assert result["step_times_s"] == pytest.approx([0.5, 0.51, 0.52, 0.53]) and result["measured_steps"] == 4
    said = run.stdout.read_text()
    assert "--batch-size=4 --input-len=24 --output-len=16 --num-iters-warmup=2 --num-iters=4" in said
    assert "--load-format=dummy" in said and "--tensor-parallel-size=1" in said
    [row] = hpc_llm.parse(folder / "logs")
    assert (row.kind, row.outcome, row.total_queries, row.prompt_tokens) == ("infer", "COMPLETED", 16, 384)
    assert row.latency_s_mean == pytest.approx(0.515) and row.queries_per_second == pytest.approx(16 / 2.06)
    assert row.tokens_per_second == pytest.approx(16 * 40 / 2.06)


def test_what_fails_there_is_named(folder: Path) -> None:
    done = submit(folder, "--run-id", "large", "--micro-batch-size", "16")
    assert done.returncode == 3
    [diagnosis] = hpc_llm.diagnose(folder / "logs" / "large")
    assert diagnosis.cause.id == "device_oom"
    assert submit(folder, "--run-id", "none", path="nowhere").returncode == 3
    reason = (read_json(RunPaths(folder / "logs" / "none").result) or {})["outcome_reason"]
    assert "the program vllm is not on PATH: load the module" in reason


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"model": "tiny"}, "tiny is a shape without a folder"),
        ({"set": ["engine=vllm", "temperature=0.5"]}, "is not told of it. Leave it out"),
        ({"method": "int8"}, "not to int8: use method q or ddp"),
        ({"set": ["engine=vlm"]}, "there is no engine of task infer 'vlm': did you mean 'vllm'"),
        ({"set": ["engine=vllm", "tasks_per_node=2"]}, "2 ranks: vLLM is one process"),
    ],
)
def test_what_it_is_not_asked_for_is_refused(folder: Path, asked: dict[str, Any], said: str) -> None:
    words = {"model": str(folder / "shape"), "method": "ddp", "set": ["engine=vllm"], **asked}
    if words["model"] != "tiny":
        words["set"] = [*words["set"], "weights=random"]
    with pytest.raises(HpcLlmError, match=said):
        hpc_llm.plan(cluster="local", task="infer", **words)


def test_all_gpus_of_the_node_are_one_process_of_it(folder: Path) -> None:
    [planned] = hpc_llm.plan(
        cluster="p4d",
        partition="q",
        task="infer",
        method="ddp",
        model=str(folder / "shape"),
        set=["engine=vllm", "weights=random"],
    )
    assert (planned.plan.parallel.gpus_per_node, planned.plan.parallel.world_size) == (8, 1)
