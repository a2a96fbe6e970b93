"""`infer_llm` with the flags of the LZU project's program: the same line works, and leaves the same file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hpc_llm
from hpc_llm.errors import RequestError
from hpc_llm.worker.baseline import parse_arguments, read_request
from hpc_llm.worker.ranks import Ranks

pytestmark = pytest.mark.train
ALONE = Ranks(0, 1, 0, 1, "127.0.0.1", 0, "python")


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    rows = [{"prompt": f"How many are {n} and one?", "completion": " more"} for n in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_the_projects_line_leaves_the_projects_file(tmp_path: Path, questions: Path) -> None:
    program = str(Path(sys.executable).with_name("infer_llm"))
    words = (
        "--model_path", "tiny", "--dataset_name", str(questions), "--dataset_split", "test", "--num_samples", "6", "--batch_size", "2",
        "--max_new_tokens", "4", "--output_dir", "results", "--method_name", "FP32", "--device", "cuda",
    )  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if name != "HPC_LLM_CACHE"}
    done = subprocess.run(
        [program, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results" / "FP32" / "baseline_inference_metrics.json").read_text())
    ran = "cuda" if torch.cuda.is_available() else "cpu"
    config = found["config"]
    assert (config["device"], config["dataset_split"], config["dataset_config"]) == (ran, "train", None), "what ran"
    assert found["config"]["num_samples"] == 6 and found["config"]["method_name"] == "FP32"
    assert list(found["metrics"]) == [
        "total_queries", "total_time", "avg_latency", "total_tokens", "throughput_tokens_per_sec", "throughput_queries_per_sec",
        "peak_memory_gb",
    ]  # fmt: skip
    [row] = hpc_llm.parse(tmp_path / "results")
    assert (row.outcome, row.total_queries, row.method) == ("COMPLETED", 6, "ddp")
    assert found["metrics"]["total_queries"] == 6 and found["metrics"]["avg_latency"] == row.latency_s_mean


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dataset_config", "socratic"), "there is no dataset_config 'socratic'"),
        (("--dataset_split", "tset"), "there is no dataset_split 'tset': did you mean 'test'"),
        (("--dataset_name", "nowhere.jsonl"), "^--dataset_name nowhere.jsonl: it cannot be read"),
        (("--model_path", "nowhere"), "^there is no model 'nowhere'"),
    ],
)
def test_what_the_data_have_not_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    arguments = parse_arguments(["--model_path", "tiny", "--output_dir", str(tmp_path), *words])
    with pytest.raises(RequestError, match=said):
        read_request(arguments, ALONE)
    with pytest.raises(RequestError, match="these flags are of one process"):
        read_request(arguments, Ranks(0, 2, 0, 2, "127.0.0.1", 29500, "torchrun"))
