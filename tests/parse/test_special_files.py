"""Pipes, devices and the kernel's files: passed over in a folder, a pipe read and a device refused where it is named."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import pytest

import hpc_llm
from hpc_llm.cli import run
from hpc_llm.errors import PassedOverWarning, RequestError
from hpc_llm.parsing import inputs
from hpc_llm.parsing.own_tables import is_own_table

LOG = "".join(
    f"{{'loss': {3 - i / 10:.2f}, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': {i}.0}}\n" for i in range(1, 9)
)
FAILED = LOG + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def pipe(path: Path, text: str) -> threading.Thread:
    """A pipe into which the text goes as soon as somebody reads it."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text,), daemon=True)
    writer.start()
    return writer


@pytest.mark.parametrize("command", ["parse", "diagnose"])
def test_special_files_in_a_folder_are_passed_over(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.log").write_text(FAILED)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "null.log").symlink_to("/dev/zero")
    (tmp_path / "environ.log").symlink_to("/proc/self/environ")
    (tmp_path / "process").symlink_to("/proc/self")
    run([command, str(tmp_path)])
    done = capsys.readouterr()
    assert "good.log" in done.out + done.err
    for name in ("pipe.log", "null.log", "environ.log", "process"):
        assert name not in done.out
    assert "environ.log: it leads to the kernel's own files" in done.err


def test_a_pipe_that_is_named_is_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, text in (("parse", '"loss_first": 2.9'), ("diagnose", "device_oom")):
        writer = pipe(tmp_path / f"{command}.pipe", FAILED)
        asked = ["--format", "json"] if command == "parse" else ["--json"]
        run([command, str(tmp_path / f"{command}.pipe"), *asked])
        writer.join(10)
        assert text in capsys.readouterr().out and not writer.is_alive()


@pytest.mark.parametrize("command", ["parse", "diagnose"])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_that_is_named_is_refused(command: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, device]) == 2
    assert f"{device} is a device or a socket" in capsys.readouterr().err


def test_what_is_no_log_by_its_name_is_no_run_of_a_folder(tmp_path: Path) -> None:
    for name in ("README.md", "README", "LICENSE.txt", "results.md", "results.tex", "notes.rst", "job.sbatch", "a.gif"):
        (tmp_path / name).write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    (tmp_path / "slurm-7.out").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    assert [path.name for path in inputs([tmp_path])] == ["slurm-7.out"]
    assert [path.name for path in inputs([tmp_path / "README.md"])] == ["README.md"]  # named itself it is read


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
@pytest.mark.parametrize("steps", [False, True])
def test_a_table_of_ours_is_no_log(tmp_path: Path, ending: str, steps: bool) -> None:
    log = tmp_path / "a.log"
    log.write_text("{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 0.001, 'epoch': 0.1}\ntorch.OutOfMemoryError: x\n")
    path = tmp_path / f"table.{ending}"
    rows = hpc_llm.parse_steps(log) if steps else hpc_llm.parse(log)
    assert rows
    rows.write(path)
    with pytest.raises(RequestError, match="a table of runs that hpc-llm wrote, and no log"):
        hpc_llm.parse(path)
    with pytest.raises(RequestError, match="and no log"):
        hpc_llm.diagnose(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert {row.source for row in hpc_llm.parse(tmp_path)} == {str(log)}
    with pytest.warns(PassedOverWarning, match="and no log"):
        assert {row.source for row in hpc_llm.parse([path, log])} == {str(log)}


def test_the_table_of_a_report_is_told_by_its_columns() -> None:
    first = b"cluster,gpu,nodes,world_size,method,configuration,outcome,runs,tokens_per_second,tokens_per_second_ci95,cause,run_ids\n"
    assert is_own_table(first)
    assert not is_own_table(b"time,step,loss,outcome,x,y,z,u,v\n") and not is_own_table(b'{"step": 1, "loss": 2.0}\n')
