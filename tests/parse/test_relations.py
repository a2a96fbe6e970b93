"""Figures of one log that contradict each other are left empty and told, whichever program printed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.parsing import parse_paths

SERVED = (
    "============ Serving Benchmark Result ============\nSuccessful requests:   {requests}\nBenchmark duration (s):   {duration}\n"
    "Total input tokens:   10000\nTotal generated tokens:   10000\nRequest throughput (req/s):   {rate}\n"
    "Output token throughput (tok/s):   {output}\nTotal Token throughput (tok/s):   {total}\n"
)
GOOD: dict[str, Any] = {"requests": 100, "duration": "10.02", "rate": "9.98", "output": "998.00", "total": "1996.01"}
HEAD = "---- arguments ----\n  seq_length .......... 1024\n  world_size ......... 8\n"
LINE = (
    " [2026-01-01 00:00:{0:02d}] iteration {1:8d}/ 1200 | consumed samples: {2:8d} | elapsed time per iteration (ms): {3} |"
    " learning rate: 1.0E-05 | global batch size: {4:5d} | lm loss: 2.0 |\n"
)
SLOW = GOOD | {"requests": 300, "duration": "10253.33", "rate": "0.03", "output": "0.98", "total": "1.95"}
SMALL_TITAN = "[titan] 2026-01-01 00:00:0{0} - root - INFO - step: {0}  loss: 2.0  memory: 40.00GiB({1}%)  tps: 8,000  tflops: 0.16  mfu: {2}%\n"
TITAN = "[titan] 2026-01-01 00:00:0{0} - root - INFO - step: {0}  loss: 2.0  memory: 40.00GiB({1}%)  tps: 8,000  tflops: 40  mfu: 4.00%\n"


def small_titan(mfu: str) -> str:
    return "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.10GiB memory\n" + "".join(
        SMALL_TITAN.format(i, "50.00", mfu) for i in range(1, 6)
    )


def megatron(ms: float | str = 1000.0, batch: int = 8, by: int = 1) -> str:
    return HEAD + "".join(LINE.format(i, i * by, 8 * i * by, ms, batch) for i in range(1, 13))


@pytest.mark.parametrize(
    ("text", "figure", "value", "told"),
    [
        (SERVED.format(**GOOD), "tokens_per_second", 1996.01, ""),
        (SERVED.format(**GOOD | {"output": "999000.0"}), "generated_tokens_per_second", None, "output tokens/s by the duration"),
        (SERVED.format(**GOOD | {"total": "2000000.0"}), "prompt_tokens_per_second", None, "tokens/s by the duration"),
        (SERVED.format(**GOOD | {"rate": "1000000.0"}), "queries_per_second", None, "requests/s by the duration"),
        (SERVED.format(**GOOD | {"duration": "0.00"}), "tokens_per_second", None, "tokens/s by the duration"),
        # 300 requests in 10253.33 s are 0.0293 a second, and 400 are 0.039.
        (SERVED.format(**SLOW), "queries_per_second", 0.03, ""),
        (SERVED.format(**SLOW | {"requests": 400}), "queries_per_second", None, "requests/s by the duration"),
        (SERVED.format(**SLOW | {"requests": 280, "rate": "0.0300"}), "queries_per_second", None, "requests/s by the duration"),
        (SERVED.format(**SLOW | {"output": "0.90"}), "generated_tokens_per_second", None, "output tokens/s by the duration"),
        # 0.16 TFLOP/s are 0.016 % of an H100's.
        (small_titan("0.02"), "mfu", 0.0002, ""),
        (small_titan("0.03"), "mfu", None, "TFLOP/s of the utilisation"),
        # 667 steps a second take 1.5 ms each.
        (megatron(ms="2", by=667).replace(" 1200 ", " 90000 "), "step_time_s_mean", 0.002, ""),
        (megatron(ms="2.0", by=1400).replace(" 1200 ", " 90000 "), "step_time_s_mean", None, "the clocks of their lines"),
        (megatron(), "tokens_per_second", 8192.0, ""),
        (megatron(batch=8000), "tokens_per_second", None, "consumed samples"),
        (megatron(ms=0.0001), "tokens_per_second", None, "least step"),
        (megatron(by=100), "step_time_s_mean", None, "the clocks of their lines"),
        ("".join(TITAN.format(i, "50.00") for i in range(1, 6)), "peak_reserved_bytes", 40 << 30, ""),
        ("".join(TITAN.format(i, "5000.00") for i in range(1, 6)), "peak_reserved_bytes", None, "share of the memory"),
        ("tokens per iteration will be: 4,096\n" + "".join(f"iter {i}: loss 2.0, time 0.01ms, mfu 40.00%\n" for i in range(9)), "tokens_per_second", None, "least step"),
    ],
)  # fmt: skip
def test_what_contradicts_is_empty_and_told(read, text: str, figure: str, value: float | None, told: str) -> None:
    reading = read(text)
    [row] = reading.rows
    assert getattr(row, figure) == (None if value is None else pytest.approx(value))
    said = [one for one in reading.left_empty if "contradict" in one]
    assert (told in said[0]) if told else not said


def test_a_line_like_a_setting_among_the_steps_begins_no_run(read) -> None:
    reading = read(
        megatron().replace(
            LINE.format(6, 6, 48, 1000.0, 8), "  seq_length .......... 65536\n" + LINE.format(6, 6, 48, 1000.0, 8)
        )
    )
    [row] = reading.rows
    assert (row.sequence_length, row.tokens_per_second) == (1024, 8192.0)
    assert any("sequence_length 65536" in said for said in reading.left_empty)


@pytest.mark.parametrize(("rate", "taken"), [(998.0, 1996.0), (999000.0, None)])
def test_the_file_of_a_benchmark_is_held_to_its_counts_too(tmp_path: Path, rate: float, taken: float | None) -> None:
    said = {
        "duration": 10.02,
        "completed": 100,
        "total_input_tokens": 10000,
        "total_output_tokens": 10000,
        "output_throughput": rate,
    }
    (tmp_path / "a.json").write_text(json.dumps({**said, "total_token_throughput": 1996.0, "request_throughput": 9.98}))
    [row] = parse_paths([tmp_path / "a.json"])
    assert row.tokens_per_second == taken and ("contradict" in (row.outcome_reason or "")) == (taken is None)


@pytest.mark.parametrize(("answered", "taken"), [(300, 0.03), (400, None)])
def test_rounded_rates_in_the_file_of_a_benchmark_are_as_good_as_their_digits(
    row, answered: int, taken: float | None
) -> None:
    said = {"duration": 10253.33, "completed": answered, "request_throughput": 0.03, "total_token_throughput": 2092.0}
    assert row(json.dumps(said), "serve.json").queries_per_second == taken


SERVE_JSON = {
    "model_id": "m", "num_prompts": 100, "duration": 10.0, "completed": 100, "total_input_tokens": 10000, "total_output_tokens": 20000,
    "request_throughput": 10.0, "output_throughput": 2000.0, "total_token_throughput": 3000.0, "mean_ttft_ms": 100.0,
    "median_ttft_ms": 90.0, "p99_ttft_ms": 200.0, "mean_tpot_ms": 10.0, "median_tpot_ms": 9.0, "p99_tpot_ms": 20.0,
    "mean_e2el_ms": 1500.0, "median_e2el_ms": 1400.0, "p99_e2el_ms": 2000.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "figure", "kept"),
    [
        ({}, "latency_s_p99", True),
        ({"p99_e2el_ms": 1.0}, "latency_s_p50", False),
        ({"mean_e2el_ms": 1.0, "median_e2el_ms": 1.0, "p99_e2el_ms": 2.0}, "time_to_first_token_s_p50", False),
        ({"mean_e2el_ms": 1e9}, "latency_s_mean", False),
        ({"mean_tpot_ms": 5000.0}, "time_per_output_token_s_mean", False),
        ({"p99_ttft_ms": 1.0}, "time_to_first_token_s_p50", False),
        ({"mean_tpot_ms": 60.0}, "time_per_output_token_s_mean", True),
    ],
)
def test_latencies_of_a_benchmark_that_contradict_are_empty_and_told(
    row, changed: dict[str, float], figure: str, kept: bool
) -> None:
    """A few slow answers may lift a mean above the 99th percentile."""
    found = row(json.dumps(SERVE_JSON | changed), "serve.json")
    assert (getattr(found, figure) is not None) == kept == (found.outcome_reason is None)
    assert found.tokens_per_second == 3000.0


def test_latencies_in_the_table_of_a_benchmark_are_held_to_one_another(read) -> None:
    table = SERVED.format(**GOOD) + "Median E2EL (ms):   1400.00\nP99 E2EL (ms):   1.00\n"
    reading = read(table)
    assert (reading.rows[0].latency_s_p50, reading.rows[0].latency_s_p99) == (None, None)
    assert any("latency_s_p50" in one for one in reading.left_empty)


def test_percentiles_of_the_latency_benchmark_rise(row) -> None:
    found = row(json.dumps({"avg_latency": 2.5, "percentiles": {"50": 2.5, "90": 2.0, "99": 3.5}}), "l.json")
    assert (found.latency_s_p50, found.step_time_s_p50, found.step_time_s_mean) == (None, None, None)
