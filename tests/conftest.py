"""What all tests share: no settings of the person who runs them, and tools that must be there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the user's own profiles nor an account of the shell decide a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in ("SBATCH_ACCOUNT", "HPC_LLM_LOGS", "HPC_LLM_CACHE", "HPC_LLM_DEBUG"):
            patch.delenv(name, raising=False)
        # Threads that spin while they wait for each other cost ten times the work where tests share the cores.
        patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        yield


@pytest.fixture(scope="session")
def tool() -> Callable[[str, str], str]:
    """`tool(command, package)`: the path of a program; where it is missing the test says how to get it."""

    def find(command: str, package: str) -> str:
        path = shutil.which(command)
        if path is not None:
            return path
        message = f"{command} is missing: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)

    return find


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with an empty home and configuration folder beside it."""
    for name in ("cwd", "home", "config"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cwd"
