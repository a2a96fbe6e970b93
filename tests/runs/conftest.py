"""What these tests share: run folders to fill with records, and a scheduler that says what a test wants."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_folders import Folder, Slurm


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
