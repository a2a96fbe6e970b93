"""Runs on the CPU agree with what is said of their memory: those that are kept as rows, and one that runs here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cpu_memory
import pytest

from hpc_llm.estimating.parts import Fit

RESULTS = Path(cpu_memory.__file__).with_name("RESULTS.md")


@pytest.mark.parametrize("row", cpu_memory.rows(), ids=lambda row: row.title)
def test_a_measured_run_is_inside_and_that_of_the_build_for_cpus_is_met(row: cpu_memory.Measured) -> None:
    off = abs(row.error) * row.peak_bytes
    assert row.is_inside and (row.build != "cpu" or off <= max(0.1 * row.peak_bytes, 1e8))


def test_no_run_with_either_build_is_said_to_fit_where_it_did_not() -> None:
    """As much memory as a job really took less one byte is never called enough for certain."""
    rows = cpu_memory.rows()
    assert {"cpu", "cu130"} <= {row.build for row in rows if row.model == "tiny"}
    for row in rows:
        need = replace(row.said, capacity=row.peak_bytes * row.tasks_per_node - 1, capacity_low=None)
        assert need.verdict is not Fit.FITS, row.title


def test_methods_engines_and_ranks_are_among_the_rows() -> None:
    rows = cpu_memory.rows()
    assert {"ddp", "z1", "z2", "z2o", "z3", "z3o", "lora", "qlora", "q", "bf16"} <= {row.method for row in rows}
    assert {row.engine for row in rows} == {"plain", "deepspeed", "fsdp2"} and {row.tasks_per_node for row in rows} == {
        1,
        2,
    }


def test_the_results_say_what_comes_out() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    for line in cpu_memory.table(cpu_memory.rows()):
        assert line in text


@pytest.mark.train
def test_a_run_of_this_machine_is_met_within_a_tenth(tmp_path: Path) -> None:
    words = "submit --cluster local --method ddp --model llama-68m --micro-batch-size 1 --sequence-length 32 --steps 4 --warmup-steps 1"
    done = subprocess.run(
        [sys.executable, "-m", "hpc_llm", *words.split(), "--logs", str(tmp_path), "--wait"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [measured] = cpu_memory.collected([str(tmp_path)])
    assert abs(measured.error) <= 0.1
