"""Both formats of the homework's logs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from hpc_llm.parsing import parse_paths

GIB = 2**30


def v1(first: int = 1, last: int = 5, total: int = 5, end: bool = True) -> str:
    lines = [
        f"[Step {i}/{total}] Loss: {6 - i / 10:.4f} | Global Tokens/s: {1000 + i:.2f} | GPU Mem (GB): 3.10 | Peak Mem: 4.{i:02}"
        for i in range(first, last + 1)
    ]
    if end:
        lines += ["", "Training done in 12.34 seconds.", "Avg Global Tokens/s: 1003.21", "Peak GPU Mem (GB): 4.05"]
    return "\n".join(lines) + "\n"


V2 = """
[Warm-up] Step 1: Loss 6.5000 | 100.00 tokens/s
[Warm-up] Step 2: Loss 6.4000 | 900.00 tokens/s

[INFO] Warm-up finished at step 2, starting measurement...
[Recording] Step 3: Loss 6.3000 | 1000.00 tokens/s
[Recording] Step 4: Loss 6.2000 | 1010.50 tokens/s
[Recording] Step 5: Loss 6.1000 | 1020.00 tokens/s

==================================================
Final Benchmark Results (Excluding 2 warm-up steps)
--------------------------------------------------
Avg Global Tokens/s:  1010.10
Total Recording Time: 8.25 s
Peak GPU Mem (GB):    7.89
==================================================
"""


def test_v1_takes_the_numbers_as_printed(row):
    found = row(v1())
    assert (found.format, found.outcome) == ("homework-v1", "COMPLETED")
    assert found.tokens_per_second == 1003.21
    assert found.peak_allocated_bytes == round(4.05 * GIB)
    assert (found.loss_first, found.loss_last) == (5.9, 5.5)
    assert (found.warmup_steps, found.measured_steps, found.elapsed_s) == (0, 5, 12.34)


def test_v1_without_its_end_has_no_average_and_says_where_it_stops(row):
    found = row(v1(last=3, end=False))
    assert found.tokens_per_second is None
    assert found.elapsed_s is None
    assert found.peak_allocated_bytes == round(4.03 * GIB)
    assert found.outcome == "UNKNOWN"
    assert "step 3 of 5" in found.outcome_reason


def test_oldest_v1_counts_one_rank(row):
    text = (
        "[Step 0/2] Loss: 5.0 | Tokens/s: 30.00 | GPU Mem (GB): 1.50\n[Step 1/2] Loss: 4.9 | Tokens/s: 41.00 | GPU Mem (GB): 1.50\n"
        "Training done in 9.00 seconds.\nAvg Tokens/s: 38.50\nPeak GPU Mem (GB): 1.50\n"
    )
    found = row(text)
    assert found.tokens_per_second_per_gpu == 38.5
    assert found.tokens_per_second is None, "how many ranks there were is not printed"


def test_v1_steps(steps):
    found = steps(v1(last=2))
    assert [(s.step, s.loss, s.tokens_per_second) for s in found] == [(1, 5.9, 1001.0), (2, 5.8, 1002.0)]
    assert found[0].allocated_bytes == round(3.10 * GIB)
    assert found[0].peak_allocated_bytes == round(4.01 * GIB)
    assert found[0].run_id == "job"


def test_v2_leaves_its_warmup_out(row, steps):
    found = row(V2)
    assert (found.format, found.outcome) == ("homework-v2", "COMPLETED")
    assert (found.tokens_per_second, found.peak_allocated_bytes) == (1010.1, round(7.89 * GIB))
    assert (found.warmup_steps, found.measured_steps, found.elapsed_s) == (2, 3, 8.25)
    assert (found.loss_first, found.loss_last) == (6.5, 6.1)
    assert [s.step for s in steps(V2)] == [1, 2, 3, 4, 5]


def test_v2_cut_short(row):
    found = row(V2[: V2.index("[Recording] Step 5")])
    assert (found.warmup_steps, found.measured_steps) == (2, 2)
    assert (found.tokens_per_second, found.outcome) == (None, "UNKNOWN")


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.31 GiB. GPU 3 has", "OOM_DEVICE"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 76.00 MiB.", "OOM_DEVICE"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks", "OOM_HOST"),
        ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-08-16T16:27:59 ***", "CANCELLED"),
        ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-08-16T16:27:59 DUE TO TIME LIMIT ***", "TIMEOUT"),
        ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-08-16T16:27:59 DUE TO PREEMPTION ***", "PREEMPTED"),
        ("*** STEP 77.0 ON n1 CANCELLED AT 2025-08-16T16:27:59 DUE TO NODE FAILURE, SEE LOG ***", "NODE_FAIL"),
        ('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no such key', "FAILED"),
    ],
)
def test_messages_set_the_outcome(row, message, outcome):
    found = row(v1(last=3, end=False) + message + "\n")
    assert found.outcome == outcome
    assert found.loss_last == 5.7


def test_conda_complaint_is_no_failure(row):
    assert row("CondaError: Run 'conda init' before 'conda deactivate'\n" + v1()).outcome == "COMPLETED"


def test_caught_error_that_training_survives_is_no_failure(row):
    caught = 'Traceback (most recent call last):\n  File "hub.py", line 9\nOSError: offline\n'
    assert row(caught + v1(last=20, total=40, end=False)).outcome == "UNKNOWN"
    assert row(v1(last=2, end=False) + caught + v1(first=3)).outcome == "COMPLETED"


def test_two_runs_in_one_log(read):
    rows = read(v1() + v1(last=4, end=False), "out.log").rows
    assert [r.run_id for r in rows] == ["out", "out#2"]
    assert [r.measured_steps for r in rows] == [5, 4]
    assert [r.outcome for r in rows] == ["COMPLETED", "UNKNOWN"]


def _engine_peak(row) -> float:
    """The most that DeepSpeed's timer printed beside the steps, in GiB."""
    return max(map(float, re.findall(r" MaxMemAllocated=([\d.]+)GB", Path(row.source).read_text())), default=0.0)


def test_real_logs_agree_to_the_last_printed_digit(real_logs: Path):
    rows = {Path(r.source).name: r for r in parse_paths([real_logs / "homework_deepspeed"])}
    with (real_logs / "homework_expected.csv").open() as file:
        expected = list(csv.DictReader(file))
    assert len(rows) == len(expected) == 33
    for want in expected:
        found = rows[want["file"]]
        if want["avg_global_tps"]:
            assert f"{found.tokens_per_second:.2f}" == want["avg_global_tps"], want
        if want["peak_mem_gb"] and found.peak_allocated_bytes is None:  # the file proves that the peak was higher
            held = re.findall(r"allocated memory ([\d.]+) GiB is allocated by PyTorch", Path(found.source).read_text())
            assert found.outcome == "OOM_DEVICE" and max(map(float, held)) > float(want["peak_mem_gb"]) + 1
        elif want["peak_mem_gb"] and (seen := _engine_peak(found)) > float(want["peak_mem_gb"]) + 1:
            # The program looked between steps alone.
            assert float(f"{found.peak_allocated_bytes / GIB:.2f}") == seen
        elif want["peak_mem_gb"]:
            assert float(f"{found.peak_allocated_bytes / GIB:.2f}") == float(want["peak_mem_gb"]), want
        if want["train_seconds"]:
            assert f"{found.elapsed_s:.2f}" == want["train_seconds"], want
        if int(want["n_step_lines"]):
            assert found.measured_steps == int(want["n_step_lines"]), want
        if "OutOfMemory" in want["errors"]:
            assert found.outcome == "OOM_DEVICE", want
        if "CANCELLED" in want["errors"]:
            # One of them had trained to its end by then.
            assert found.outcome == ("COMPLETED" if want["train_seconds"] else "CANCELLED"), want
            assert "CANCELLED AT" in (found.outcome_reason or ""), want
        if want["errors"].startswith(("ImportError", "AssertionError")):
            assert found.outcome == "FAILED", want
