"""What these tests share: run folders to fill with records, and a scheduler that says what a test wants."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_folders import Folder, Slurm


@pytest.fixture(autouse=True, scope="module")
def _no_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Slurm's clients say at once that there is no cluster; the real ones look for it in DNS, where an answer may be lost."""
    folder = tmp_path_factory.mktemp("no-slurm")
    for client in ("squeue", "sacct", "scontrol", "scancel", "sbatch"):
        (folder / client).write_text(
            f"#!/bin/sh\necho '{client}: fatal: Could not establish a configuration source' >&2\nexit 1\n"
        )
        (folder / client).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs have compiled lies in a user's home, and `clean` removes it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """The folder of a run of Slurm's job 7, submitted long ago."""
    return Folder(tmp_path / "logs" / "run-1")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The scheduler as every command asks it; it does not answer until a test lets it."""
    said = Slurm()
    monkeypatch.setattr("hpc_llm.runs.looks.ask", said.ask)
    return said
