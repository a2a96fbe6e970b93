"""Logs as they come: progress bars, colours, NUL bytes, compressed, notebooks, broken, huge."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpc_llm.causes.found import rank_of
from hpc_llm.causes.tracebacks import exceptions_in
from hpc_llm.cli import run
from hpc_llm.diagnosis import Diagnosis, diagnose_files, diagnose_stream, jobs_under
from hpc_llm.errors import RequestError

Diagnose = Callable[[str | bytes], Diagnosis]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.31 GiB. GPU 6 has a total capacity of 31.74 GiB "
    "of which 3.64 GiB is free. Including non-PyTorch memory, this process has 28.09 GiB memory in use. Of the "
    "allocated memory 27.25 GiB is allocated by PyTorch, and 69.27 MiB is reserved by PyTorch but unallocated."
)
HEADING = "Traceback (most recent call last):"
STEP = "{'loss': 2.1, 'learning_rate': 1e-05, 'epoch': 0.5}\n"


def test_lines_are_counted_as_editors_do(diagnose: Diagnose) -> None:
    bar = "".join(f"\r {k}%|##  | {k}/100 [00:10<01:23, 12.1it/s]" for k in range(50))
    found = diagnose(f"first\r\nsecond\n{bar}\n{OOM}\n").evidence[0]
    assert (found.line, found.text[:24]) == (4, "torch.OutOfMemoryError: ")


def test_a_message_behind_a_bar_is_on_the_line_of_the_bar(diagnose: Diagnose) -> None:
    found = diagnose("one\n 1%|  | 1/9 [00:01<00:08, 1.0s/it]\r 2%|  | 2/9 [00:02<00:07, 1.0s/it]\r" + OOM + "\n")
    assert found.evidence[0].line == 2


def test_lines_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpc_llm.text.sources.BLOCK", 64)
    text = "".join(f"line {k}\r\n" for k in range(1, 400)) + OOM + "\n"
    assert diagnose_stream(io.BytesIO(text.encode())).evidence[0].line == 400


def test_colours_nul_bytes_and_a_half_line(diagnose: Diagnose) -> None:
    colourful = OOM.replace("CUDA out of", "\x1b[31mCUDA\x1b[0m out\x00 of")
    assert diagnose(f"\x00\x00[0m{colourful}").cause.id == "device_oom"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_compressed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "job.log.packed"
    file.write_bytes(pack(f"begin\n{OOM}\n".encode()))
    found = diagnose_files([file])
    assert (found.cause.id, found.evidence[0].line) == ("device_oom", 2)


def test_a_compressed_log_that_was_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "job.log.gz"
    file.write_bytes(gzip.compress(f"{OOM}\n{STEP * 9}".encode())[:-20])
    assert diagnose_files([file]).cause.id in ("device_oom", "unknown")


@pytest.mark.parametrize("indent", [1, None])
def test_a_notebook(tmp_path: Path, indent: int | None) -> None:
    cell: dict[str, Any] = {"cell_type": "code", "source": ["raise MemoryError\n"], "metadata": {}}
    texts = [{"output_type": "stream", "text": ["starting\n", "step 1 | loss 3.1\n"]}]
    error = {"output_type": "error", "ename": "X", "evalue": "", "traceback": ["\x1b[0;31mTraceback\x1b[0m", OOM]}
    cells = [{**cell, "outputs": texts}, {**cell, "outputs": [error]}]
    text = json.dumps({"cells": cells, "nbformat": 4}, indent=indent)
    file = tmp_path / "run.ipynb"
    file.write_text(text)
    found = diagnose_files([file])
    assert found.cause.id == "device_oom"
    assert "Tried to allocate" in text.splitlines()[found.evidence[0].line - 1]


@pytest.mark.parametrize(
    "text", ['{"cells": [', '{"cells": 3}', '{"cells": [{"outputs": [{"text": 7}]}]}', '{"cells": [1]}']
)
def test_what_only_looks_like_a_notebook(diagnose: Diagnose, text: str) -> None:
    assert diagnose(text).cause.id == "unknown"


def test_a_binary_and_an_empty_file(diagnose: Diagnose) -> None:
    for binary in (bytes(range(256)) * 50, b"\x00\x01\x02bin\xff\xfe"):
        found = diagnose(binary)
        assert (found.cause.id, found.summary) == ("unknown", "The output is binary data, not text.")
    assert diagnose("").summary == "The output is empty."


def test_a_large_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "large.log"
    with file.open("w") as out:
        for _ in range(50):
            out.write(STEP * 20000)
        out.write(OOM + "\n")
    tracemalloc.start()
    began = time.process_time()
    found = diagnose_files([file])
    seconds = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.cause.id, found.evidence[0].line) == ("device_oom", 50 * 20000 + 1)
    assert peak < 42 << 20
    assert seconds < 60  # 4 on a quiet machine, and hours if it grew with the square of the lines


def test_what_is_loud_is_seen_in_the_middle_of_a_large_log(tmp_path: Path) -> None:
    file = tmp_path / "large.log"
    with file.open("w") as out:
        for _ in range(2):
            out.write("a line that says nothing at all\n" * 200000)
        out.write("slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-08-16T16:27:59 DUE TO TIME LIMIT ***\n")
        for _ in range(2):
            out.write("a line that says nothing at all\n" * 200000)
    assert diagnose_files([file]).cause.id == "walltime"


def test_the_files_of_one_job_belong_together(tmp_path: Path) -> None:
    (tmp_path / "job-1.out").write_text(STEP)
    (tmp_path / "job-1.err").write_text(OOM + "\n")
    (tmp_path / "job-2.out").write_text("{'train_runtime': 3.0}\n")
    jobs = jobs_under([tmp_path])
    assert [[f.name for f in files] for files in jobs] == [["job-1.err", "job-1.out"], ["job-2.out"]]
    assert [diagnose_files(files).cause.id for files in jobs] == ["device_oom", "none"]


def test_the_log_folder_of_torchrun_is_one_job(tmp_path: Path) -> None:
    for rank, text in ((0, "RuntimeError: Connection reset by peer\n"), (1, "MemoryError\n")):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text)
        (folder / "stdout.log").write_text("")
    [files] = jobs_under([tmp_path])
    assert diagnose_files(files).cause.id == "host_oom"


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        jobs_under([tmp_path / "nothing"])


def test_prefixes_of_ranks() -> None:
    lines = [b"[rank3]: x", b"[default7]: x", b" 12: x", b"[Rank 5] x", b"[1,4]<stderr>:x", b"loss 1", b"12:30:00 x"]
    assert [rank_of(line) for line in lines] == [3, 7, 12, 5, 4, None, None]


def test_exceptions_of_interleaved_ranks() -> None:
    text = (
        b"[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
        b'[rank0]:   File "a.py", line 1, in f\n[rank1]:   File "a.py", line 2, in g\n'
        b"[rank1]: KeyError: 'x'\n[rank0]: my.pkg.Strange: it broke\n"
    )
    assert [(name, message) for _, name, message in exceptions_in(text)] == [
        ("my.pkg.Strange", "it broke"),
        ("KeyError", "'x'"),
    ]


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-20 10:00:{:02} ", "[2026-11-20 10:00:{:02}] ", "2026-11-20T10:00:{:02}Z ", "2026-11-20T10:00:00.1234{:02}000Z ", "2026-11-20T10:00:{:02}.123456+00:00 ",
        "Nov 20 10:00:{:02} ", "[10:00:{:02}] ", "{}.123 ", "node7 10:00:{:02},251 ",
    ],
)  # fmt: skip
def test_a_traceback_whose_lines_have_each_a_time_of_their_own(diagnose: Diagnose, stamp: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/t.py", line 3, in <module>',
        "    main()",
        "ValueError: no",
    ]
    for first in (0, 8):
        found = diagnose("".join(f"{stamp.format(first + n)}{line}\n" for n, line in enumerate(lines)))
        assert (found.cause.id, found.details["message"]) == ("python_exception", "no")


def test_times_part_no_ranks_and_ranks_are_not_taken_for_times() -> None:
    text = "".join(
        f"[rank{rank}] 10:00:0{n} {line}\n"
        for n, pair in enumerate([(HEADING, HEADING), ("  File 1", "  File 2"), ("KeyError: 1", "ValueError: 2")])
        for rank, line in enumerate(pair)
    )
    assert [(name, message) for _, name, message in exceptions_in(text.encode())] == [
        ("KeyError", "1"),
        ("ValueError", "2"),
    ]


def test_a_folder_with_nothing_in_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(tmp_path)]) == 2
    assert f"there is no run and no log in {tmp_path}: give a run, a log file" in capsys.readouterr().err
