"""The scratch cluster and its sites, started once for all tests that ask for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the parts of the harness are modules beside this file

from login_node import LoginNode
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("scratch_fixtures")


@pytest.fixture
def on_cluster(slurm: ScratchSlurm, monkeypatch: pytest.MonkeyPatch) -> ScratchSlurm:
    """This process talks to the scratch cluster, as a command on a login node does."""
    for name in set(os.environ) - set(slurm.environ):
        monkeypatch.delenv(name)
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    # The nodes are this machine, whose files are never late; a script that is killed leaves no record that says so.
    monkeypatch.setattr("hpc_llm.runs.outcome.GRACE_S", 3.0)
    return slurm


@pytest.fixture
def node(slurm: ScratchSlurm, quick_site: ScratchSite, tmp_path: Path) -> LoginNode:
    """A login node of the test's own, with the profiles of the sites."""
    login = LoginNode(tmp_path, slurm)
    quick_site.write_profiles(login.folder)
    return login


@pytest.fixture
def without_accounting(on_cluster: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScratchSlurm:
    """sacct answers as it does where a site keeps no accounting."""
    shadow(tmp_path, monkeypatch, "sacct")
    return on_cluster


@pytest.fixture
def without_answers(without_accounting: ScratchSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScratchSlurm:
    """Neither sacct nor squeue answers."""
    shadow(tmp_path, monkeypatch, "squeue")
    return without_accounting


def shadow(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """Put a `command` first on PATH that fails as Slurm's does."""
    complaints = {
        "sacct": "Slurm accounting storage is disabled",
        "squeue": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    }
    path = folder / "shadows" / command
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{complaints[command]}' >&2\nexit 1\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
