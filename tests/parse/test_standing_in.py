"""Logs of any size whose only steps are those of a library below their program."""

from __future__ import annotations

import gzip
import io
import os
import threading
import warnings
from pathlib import Path

import pytest

from hpc_llm.errors import PassedOverWarning
from hpc_llm.parsing import parallel, parse_paths, parse_steps, parse_stream

LINE = f"[rank0]: {'a word about nothing that a program prints now and then, and no figure in it at all; ' * 10}\n"
HEAD = (
    "using world size: 16, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 4\n"
    "------------------------ arguments ------------------------\n"
    f"  global_batch_size {'.' * 30} 16\n  seq_length {'.' * 30} 2048\n"
)
STEPS = [f"steps: {i} loss: {12.5 - i / 8} iter time (s): 2.048 samples/sec: 7.812\n" for i in range(1, 41)]
OWN = "".join(
    f" iteration {i:8}/     100 | elapsed time per iteration (ms): 3000.0 | lm loss: 2.5E+00 |\n" for i in range(1, 6)
)


def long_log(end: str = "") -> str:
    """More than 3 MiB with 40 steps of the engine, the first behind what is read at once."""
    return HEAD + LINE * 2500 + (LINE * 30).join(STEPS) + end


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["job.log", "job.log.gz"])
def test_the_engines_steps_are_read_in_a_long_log(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, long_log())
    (row,) = parse_paths([path])
    assert (row.format, row.step_time_s_mean, row.measured_steps) == ("megatron", 2.048, 39)
    assert (row.loss_first, row.loss_last, row.tokens_per_second) == (12.375, 7.5, 16000.0)
    assert [step.step for step in parse_steps([path])] == list(range(1, 41))


@pytest.mark.parametrize("name", ["job.log", "job.log.gz"])
def test_a_programs_first_step_may_stand_behind_any_number_of_the_engines(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, long_log(end=OWN))
    (row,) = parse_paths([path])
    assert (row.step_time_s_mean, row.loss_last) == (3.0, 2.5)
    assert [step.step for step in parse_steps([path])] == [1, 2, 3, 4, 5]


def test_the_pieces_of_a_log_take_the_engines_steps_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "job.log", long_log())
    alone = list(parse_paths([path], jobs=1))
    monkeypatch.setattr(parallel, "WORTHWHILE", 1 << 20)
    monkeypatch.setattr(parallel, "PIECE", 1 << 20)
    monkeypatch.setattr(parallel, "LARGEST_PIECE", 1 << 20)
    assert list(parse_paths([path], jobs=2)) == alone
    (row,) = alone
    assert row.measured_steps == 39


def test_a_file_that_is_open_is_read_on_where_it_was(tmp_path: Path) -> None:
    (row,) = parse_stream("job", io.BytesIO(long_log().encode())).rows
    assert (row.measured_steps, row.loss_last) == (39, 7.5)


def test_a_long_pipe_whose_steps_may_be_lost_is_told(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    for text, told in ((long_log(), True), (HEAD + "".join(STEPS), False), (long_log(end=OWN), False)):
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            (row,) = parse_paths([pipe])
        writer.join(10)
        assert any(issubclass(one.category, PassedOverWarning) for one in said) is told, said
        assert (row.step_time_s_mean is None) is told
