"""Logs that are huge, empty inside, without lines, or made to fill a machine: little memory, an end, and a word of what is cut."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from hpc_llm.text import sources

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


@pytest.mark.parametrize("command", ["diagnose", "parse"])
@pytest.mark.parametrize("make", [hole, endless_line, nul_bytes, document])
def test_little_memory_and_an_end(tmp_path: Path, make: Callable[[Path], None], command: str) -> None:
    log = tmp_path / "job.log"
    make(log)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, command, str(log)], capture_output=True, text=True, timeout=90, check=True
    )
    assert int(done.stderr.split("PEAK_MIB")[1]) <= MOST_MIB
    if make is document:
        assert "is not read whole" in done.stderr or command == "diagnose"
    else:
        assert "RuntimeError: broken" in done.stdout


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
