"""Logs that are huge, empty inside, without lines, or made to fill a machine: little memory, an end, and a word of what is cut."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from pace import is_within

import hpc_llm
from hpc_llm.api.rows import read_rows
from hpc_llm.errors import PassedOverWarning
from hpc_llm.parsing.joining import MOST_RUNS, join, leave_out
from hpc_llm.parsing.registry import formats_in
from hpc_llm.parsing.run import LogRun
from hpc_llm.parsing.scan import Scanner
from hpc_llm.parsing.unparsed import Unparsed
from hpc_llm.records.files import load_json, load_json_lines
from hpc_llm.text import sources
from hpc_llm.text.blocks import Block
from hpc_llm.text.json_text import DamagedRecordError
from hpc_llm.text.json_weight import is_too_heavy

MEASURED = """
import sys
from hpc_llm.cli import run
code = run(sys.argv[1:])
with open("/proc/self/status") as file:  # getrusage would count what the parent had when it forked, too
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
print("PEAK_MIB", peak // 1024, file=sys.stderr)
sys.exit(code)
"""
MOST_MIB = 150
STEPS = b"".join(
    b"[Step %d/900] Loss: 2.5 | Global Tokens/s: 5.5 | GPU Mem (GB): 3.10 | Peak Mem: 4.25\n" % i for i in range(1, 30)
)
END = b'\nTraceback (most recent call last):\n  File "a.py", line 1, in f\nRuntimeError: broken\n'


def hole(path: Path) -> None:
    with path.open("wb") as file:
        file.write(STEPS)
        file.truncate(2 << 30)
        file.seek(0, 2)
        file.write(END)


def _between(path: Path, block: bytes, times: int) -> None:
    """Steps, the block so many times, and how it ended."""
    with path.open("wb") as file:
        file.write(STEPS)
        for _ in range(times):
            file.write(block)
        file.write(END)


def endless_line(path: Path) -> None:
    _between(path, b"x=" * (1 << 18), 300)


def nul_bytes(path: Path) -> None:
    _between(path, b"\0" * (1 << 20), 200)


def document(path: Path) -> None:
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"log_history": [')
        for _ in range(100):
            file.write(b"[" * (1 << 20))


def _of_values(begin: str, value: str) -> Callable[[Path], None]:
    """A document as large as one may be, whose values would take forty times as much."""

    def make(path: Path) -> None:
        count = ((32 << 20) - 200) // (len(value) + 1)
        path.write_text(f"{begin}{','.join([value] * count)}]}}")

    return make


ENTRY = '\n    {\n      "epoch": 0.01,\n      "learning_rate": 1e-05,\n      "loss": 2.5,\n      "step": 17\n    }'
"""As the Trainer writes each, on lines of its own."""
HISTORY, CELLS = '{"global_step": 1, "log_history": [', '{"nbformat": 4, "cells": [{"cell_type": "code"},'


@pytest.mark.parametrize(
    ("command", "begin", "value"),
    [("parse", HISTORY, "{}"), ("parse", CELLS, '""'), ("diagnose", HISTORY, ENTRY), ("diagnose", CELLS, "{}")],
)  # fmt: skip
def test_a_document_of_very_many_values_takes_little_memory(
    tmp_path: Path, command: str, begin: str, value: str
) -> None:
    path = tmp_path / ("a.ipynb" if begin is CELLS else "trainer_state.json")
    _of_values(begin, value)(path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, command, str(path)], capture_output=True, text=True, timeout=200, check=True
    )
    assert int(done.stderr.split("PEAK_MIB")[1]) <= MOST_MIB
    assert "so many values" in done.stderr or begin is CELLS


def test_the_history_of_a_long_run_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    history = [{"loss": 2.5, "step": step, "epoch": step / 1000, "learning_rate": 1e-5} for step in range(1, 100_001)]
    path.write_text(json.dumps({"log_history": history, "global_step": 100_000, "max_steps": 100_000}, indent=2))
    [row] = hpc_llm.parse(path)
    assert (row.format, row.outcome, row.loss_last) == ("hf-trainer", "COMPLETED", 2.5)


@pytest.mark.parametrize(
    ("text", "is_heavy"),
    [
        (b"[" + b"{}," * 300_000 + b"1]", False), (b"[" + b"{}," * 1_000_000 + b"1]", True), (b'["' + b"{}," * 3_000_000 + b'"]', False),
        (b'["' + rb"\"," * 3_000_000 + b'"]', False), (b'["\\\\",' + b"[]," * 2_000_000 + b"1]", True), (b'["' + b"\\" * 9_000_000 + b'"]', True),
        ('["é😀"]'.encode() + b" " * (15 << 20), True), ('["é"]'.encode() + b" " * (15 << 20), False), (b'["' + b"a" * 1000 + b'","' * 2_000_000 + b'"]', True),
    ],
)  # fmt: skip
def test_what_a_text_would_take_is_told_without_its_texts(text: bytes, is_heavy: bool) -> None:
    assert is_too_heavy(text) is is_heavy


def test_a_record_of_very_many_values_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "experiment.json"
    _of_values('{"schema": 1, "x": [', "{}")(path)
    with pytest.raises(DamagedRecordError, match="more values"):
        load_json(path)
    path.write_bytes(b"{}\n" * 3_000_000)
    with pytest.raises(DamagedRecordError, match="more values"):
        load_json_lines(path)


@pytest.mark.parametrize("command", ["diagnose", "parse"])
@pytest.mark.parametrize("make", [hole, endless_line, nul_bytes, document])
def test_little_memory_and_an_end(tmp_path: Path, make: Callable[[Path], None], command: str) -> None:
    log = tmp_path / "job.log"
    make(log)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, command, str(log)], capture_output=True, text=True, timeout=200, check=True
    )
    assert int(done.stderr.split("PEAK_MIB")[1]) <= MOST_MIB
    if make is document:
        assert "is not read whole" in done.stderr or command == "diagnose"
    else:
        assert "RuntimeError: broken" in done.stdout


def test_lines_far_apart_among_zeros_take_little_time(tmp_path: Path) -> None:
    """No block is empty, so no hole is skipped: the zeros of each are taken out."""
    log = tmp_path / "job.log"
    with log.open("wb") as file:
        for place in range(0, 1 << 29, sources.BLOCK):
            file.seek(place)
            file.write(STEPS[: STEPS.find(b"\n") + 1])
        file.write(END)
    started = time.process_time()
    with sources.open_log(log) as opened:
        lines = b"".join(sources.blocks(opened, log)).splitlines()
    assert is_within(time.process_time() - started, 3)
    assert len(lines) == (1 << 29) // sources.BLOCK + END.count(b"\n") and lines[-1] == b"RuntimeError: broken"


@pytest.mark.parametrize("opened", [gzip.open, lzma.open, bz2.open])
def test_a_file_that_grows_beyond_measure_is_cut_and_named(
    tmp_path: Path, opened: Callable[..., IO[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MOST_INFLATED", 1 << 21)
    log: Any = tmp_path / "bomb.gz"
    with opened(log, "wb") as file:
        file.write(b"a" * (1 << 26))  # no line at all
    with pytest.warns(UserWarning, match=r"bomb.gz: it is more than 200 times as large"), sources.open_log(log) as text:
        assert len(b"".join(sources.reads(text, log))) <= 1 << 24


def test_an_honest_log_is_read_to_its_end_however_well_it_shrinks(tmp_path: Path) -> None:
    log = tmp_path / "job.log.gz"
    with gzip.open(log, "wb") as file:
        file.write(STEPS * 4000 + END)
    with sources.open_log(log) as text:
        assert b"".join(sources.reads(text, log)).endswith(END)


@pytest.mark.parametrize(
    "lines",
    [
        b" iteration        1/     100 | elapsed time per iteration (ms): 5.0 | learning rate: 1.0E-04 | global batch size: 16 | lm loss: 9.1E+00 |\n",
        b"UserWarning: the same line again\n",
        b"one\r 10%|#  | 1/10\rtwo\nthree\n" * 3 + b"four\n",
    ],
)
def test_lines_that_only_repeat_are_read_once_and_the_end_is_found(
    tmp_path: Path, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "REPEATED_AFTER", 1 << 20)
    log: Any = tmp_path / "job.log.gz"
    with gzip.open(log, "wb", 1) as file:
        file.write(STEPS + lines * ((24 << 20) // len(lines)) + END)
    with pytest.warns(UserWarning, match=r"job.log.gz: 2[12] MiB of it repeat"), sources.open_log(log) as opened:
        text = b"".join(sources.reads(opened, log))
    assert text.startswith(STEPS) and text.endswith(END) and len(text) < 3 << 20
    middle = text[len(STEPS) : -len(END)]
    assert middle == lines * (len(middle) // len(lines))


def test_lines_that_differ_are_all_read(tmp_path: Path) -> None:
    log: Any = tmp_path / "job.log.gz"
    whole = b"".join(b"step %d of 1000000 loss 2.5\n" % (i // 4) for i in range(500_000))
    with gzip.open(log, "wb", 1) as file:
        file.write(whole)
    with sources.open_log(log) as opened:
        assert b"".join(sources.reads(opened, log)) == whole


OVER = "slurmstepd: error: *** JOB {0} ON gn1 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
STEP_OF = "{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}}\n"


@pytest.mark.parametrize("pieces", [1, 3])
def test_of_very_many_runs_the_first_and_the_last_are_kept(pieces: int, tmp_path: Path) -> None:
    """Each would take memory; the sentence says what was left out, and the last keeps its number."""
    count = MOST_RUNS + 50
    text = "".join((STEP_OF + OVER).format(number) for number in range(count))
    log = tmp_path / "many.log"
    log.write_text(text)
    with pytest.warns(PassedOverWarning, match=f"it holds {count} runs, of which the first {MOST_RUNS} and the last"):
        rows = list(read_rows(str(log)))
    assert len(rows) == MOST_RUNS + 1
    assert (rows[0].run_id, rows[-2].run_id, rows[-1].run_id) == ("many", f"many#{MOST_RUNS}", f"many#{count}")
    assert {row.cause for row in rows} == {"walltime"}
    if pieces == 3:  # joined as those of a large file are
        seam = text.index(OVER.format(700)) + len(OVER.format(700))
        parts = [text[:seam], text[seam:]]
        runs: list[LogRun] = []
        for part in parts:
            scanner = Scanner(formats_in(part.encode()))
            scanner.feed(part.encode())
            runs = join((runs, scanner.finish()))
            leave_out(runs)
        held = sum(run.has_steps for run in runs)  # behind the last job no run may have begun yet
        assert held == MOST_RUNS + 1 and sum(run.left_out_before for run in runs) in (
            count - MOST_RUNS - 1,
            count - MOST_RUNS,
        )


def test_line_numbers_of_a_block_are_told_at_once() -> None:
    text = b"a\n" * 500_000
    block = Block(text, text, 7, 0)
    began = time.process_time()
    assert [block.line_number(2 * line) for line in range(0, 500_000, 50)] == [
        7 + line for line in range(0, 500_000, 50)
    ]
    assert is_within(time.process_time() - began, 2)
    bar = b"x\ry\rz\r\nend\n"
    block = Block(sources.clean(bar), bar, 1, 0)
    assert block.line_number(0) == 1
    assert block.line_number(block.text.find(b"end")) == 2


def test_underscores_are_no_metrics_and_take_no_time() -> None:
    text = (b"_" * 390 + b"\n") * 3000
    began = time.process_time()
    Unparsed().look(text, [])
    assert is_within(time.process_time() - began, 3)
    found = Unparsed()
    found.look(b"output_tokens_per_s: 5\nthroughput_tokens/s = 7\nmy tok/s 4\ngloss: 3\nLoss=3\n", [])
    assert found.count == 4
