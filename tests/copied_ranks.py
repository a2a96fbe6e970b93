"""Ranks and commands that begin at once: copies of a process that has imported what they need, shared by all processes of the tests.

A plugin, as `scratch_fixtures`. What it saves are four seconds of a processor for each rank. That ranks start by themselves is proved
where it is claimed: test_launchers.py, test_two_nodes.py, test_slurm_jobs.py, test_keeping.py.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "copies"
PLACE = "HPC_LLM_TESTS_COPIES"
_START_S = 120.0
_SPEC = importlib.util.spec_from_file_location("copies_client", FOLDER / "sitecustomize.py")
assert _SPEC and _SPEC.loader
_CLIENT = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_CLIENT)


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the process of which ranks are copies."""
    with _shared(tmp_path_factory, "ranks") as place:
        yield place


@pytest.fixture(scope="session")
def copied_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the process of which commands are copies."""
    with _shared(tmp_path_factory, "commands") as place:
        yield place


def copied_command(
    place: Path, words: Sequence[str], folder: Path, environ: Mapping[str, str], timeout_s: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """A command of hpc-llm, run to its end as a program of its own would: what is not claimed is that it starts by itself."""
    with _line() as line, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        line.connect(str(place))
        line.settimeout(timeout_s)
        _CLIENT.send(
            line, "command", list(words), [nothing.fileno(), out.fileno(), err.fileno()], str(folder), dict(environ)
        )
        *_, status = line.makefile("r")
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(words, int(status), out.read().decode(), err.read().decode())


@contextmanager
def _shared(made: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """The socket of the one process of that name, which is started where it is not there yet."""
    base = made.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = folder / f"{name}.sock"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = _held(place) or _started(place, name)
    with line:
        yield place


@pytest.fixture(scope="module")
def copied_ranks(copies: Path) -> Iterator[None]:
    """What a test of this module starts on this machine begins as a copy, wherever it is a rank or what launches ranks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables_for(copies).items():
            patch.setenv(name, value)
        yield


def variables_for(copies: Path) -> dict[str, str]:
    """By which a Python finds the process that is copied."""
    before = os.environ.get("PYTHONPATH")
    return {PLACE: str(copies), "PYTHONPATH": os.pathsep.join([str(FOLDER), *([before] if before else [])])}


def text_for(copies: Path) -> str:
    """Text of the `sitecustomize.py` of an environment whose ranks are copies, whatever variables they get."""
    return f"{(FOLDER / 'sitecustomize.py').read_text()}\n\nhand_over({str(copies)!r})\n"


def _line() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _held(place: Path) -> socket.socket | None:
    line = _line()
    try:
        line.connect(str(place))
    except OSError:
        line.close()
        return None
    content = json.dumps("hold").encode()
    line.sendall(len(content).to_bytes(8, "big") + content)
    return line


def _started(place: Path, name: str) -> socket.socket:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = place.with_suffix(".txt")
    with said.open("w") as log:
        copied = subprocess.Popen(
            [sys.executable, str(FOLDER / "copied.py"), str(place), name],
            env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _START_S
    while (line := _held(place)) is None:
        assert copied.poll() is None and time.monotonic() < deadline, said.read_text()[-3000:]
        time.sleep(0.05)
    return line
