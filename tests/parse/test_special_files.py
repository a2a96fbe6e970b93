"""Pipes, devices and the kernel's files: passed over in a folder, a pipe read and a device refused where it is named."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hpc_llm.cli import run

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
