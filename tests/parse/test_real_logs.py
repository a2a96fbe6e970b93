"""A collection of real logs beside the repository, where there is one: all are read, none raises, broken or not."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from hpc_llm.parsing import Row, parse_paths, parse_steps, parse_stream, parse_stream_steps

FORMATS = {
    "axolotl": {"axolotl"},
    "composer": {"composer"},
    "deepspeed": {"deepspeed-chat", "deepspeed"},
    "hf_trainer": {"hf-trainer"},
    "hf_trainer_notebook": {"hf-trainer", "messages", "unknown"},
    "homework_deepspeed": {"homework-v1", "deepspeed"},
    "llama_factory": {"llama-factory"},
    "megatron": {"megatron"},
    "megatron_deepspeed": {"megatron"},
    "nanogpt": {"nanogpt"},
    "nemo": {"mlperf", "nemo"},
    "sagemaker_hf_deepspeed": {"accelerate", "hf-trainer", "deepspeed", "messages"},
    "sagemaker_smp_tp": {"sagemaker"},
    "torchtitan": {"torchtitan"},
    "vllm": {"vllm"},
    "failures": {"slurm", "messages", "unknown"},
}
WITHOUT_ANYTHING_TO_READ = {
    "sunminqiu_Mistral_cell3.log",  # the GPU's name and memory
    "sunminqiu_Mistral_cell8.log",  # a kernel profiler's lines, cut short before training
    "sunminqiu_llama_cell5.log",
}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, list[Row]]:
    real_logs = Path(__file__).resolve().parents[3] / "shared" / "logs"
    if not real_logs.is_dir():
        pytest.skip(f"no collection of real logs at {real_logs}")
    with (real_logs / "SOURCES.csv").open() as file:
        paths = [real_logs / line["kind"] / line["file"] for line in csv.DictReader(file)]
    rows: dict[str, list[Row]] = {str(path): [] for path in paths}
    for row in parse_paths(paths):
        rows[str(row.source)].append(row)
    return rows


def test_every_log_is_read_or_named_unknown_with_a_reason(found: dict[str, list[Row]]) -> None:
    assert len(found) == 115
    for source, rows in found.items():
        kind, name = Path(source).parts[-2:]
        assert rows, source
        assert {row.format for row in rows} <= FORMATS[kind], source
        assert (rows[0].format == "unknown") == (name in WITHOUT_ANYTHING_TO_READ), source
        assert all(row.outcome_reason for row in rows if row.outcome != "COMPLETED"), source


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama_factory/finquant_qlora_trainer_log.jsonl", {"tokens_per_second": 2036.08, "elapsed_s": 9904.0}),
        (
            "sagemaker_hf_deepspeed/exp3-QLORA_exp3_runs_7-bill-8-plain__cell7.log",
            {"elapsed_s": 1031.5337, "measured_steps": 214},
        ),
        (
            "megatron/bigscience_meg_gpt2_base_n64_TIMELIMIT.out",
            {"outcome": "TIMEOUT", "world_size": 256, "job_id": "1809655"},
        ),
        ("megatron_deepspeed/alcf_cooldown_2025-11.log", {"sequence_length": 8192, "peak_allocated_bytes": 39 * 2**30}),
        ("nemo/mlperf_v5.0_amd_mi300x_llama2_lora_result_0.txt", {"outcome": "COMPLETED", "global_batch_size": 8}),
        ("torchtitan/titan_debug_model_2025-10.log", {"loss_last": 4.7947, "measured_steps": 2}),
        ("vllm/vllm_bench_serve_pr18566.txt", {"tokens_per_second": 14029.44, "task": "infer"}),
        ("nanogpt/nanogpt_shakespeare_multi_server.log", {"num_parameters": 10_650_000, "warmup_steps": 1}),
        ("failures/slurm_oom_kill_step_srun.log", {"outcome": "OOM_HOST", "job_id": "32436650"}),
    ],
)
def test_values(found: dict[str, list[Row]], name: str, expected: dict[str, object]) -> None:
    (row,) = next(rows for source, rows in found.items() if source.endswith(name))
    assert {column: getattr(row, column) for column in expected} == expected


def test_two_programs_of_one_trainer_log_are_one_row_without_figures(found: dict[str, list[Row]]) -> None:
    """Each step stands twice, with losses and clocks that differ in their last digits."""
    (row,) = next(rows for source, rows in found.items() if source.endswith("rameyjm7_trainer_log.jsonl"))
    assert (row.measured_steps, row.loss_last, row.elapsed_s) == (None, None, None)
    assert "more than one run" in (row.outcome_reason or "")


def test_steps_belong_to_the_rows(found: dict[str, list[Row]]) -> None:
    known = {row.run_id for rows in found.values() for row in rows}
    assert {step.run_id for step in parse_steps(found)} <= known


@pytest.mark.parametrize("seed", range(40))
def test_lines_cut_and_shuffled_never_raise(found: dict[str, list[Row]], seed: int) -> None:
    rng = random.Random(seed)
    lines = []
    for source in rng.sample(sorted(found), 6):
        text = Path(source).read_bytes().splitlines(keepends=True)
        start = rng.randrange(len(text))
        lines += text[start : start + 40]
    rng.shuffle(lines)
    cut = [
        line[rng.randrange(len(line)) :] if rng.random() < 0.3 else line[: rng.randrange(1, len(line) + 1)]
        for line in lines
    ]
    for data in (b"".join(lines), b"".join(cut)):
        assert parse_stream("log", io.BytesIO(data), verbose=True).rows
        list(parse_stream_steps("log", io.BytesIO(data)))
