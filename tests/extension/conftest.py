"""One installation of all that is outside, which the tests of this folder share and none of them changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed import OUTSIDE, Cli, hpc_llm, install_outside


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_outside(tmp_path_factory.mktemp("outside") / "site")
    clusters = folder / "config" / "hpc-llm" / "clusters"
    clusters.mkdir(parents=True)
    shutil.copy(OUTSIDE / "cluster.yaml", clusters / "theirs.yaml")
    return folder


@pytest.fixture
def cli(site: Path, tmp_path: Path) -> Cli:
    """The console script with all of it; it works in tmp_path."""

    def run(*arguments: str) -> CompletedProcess[str]:
        return hpc_llm(*arguments, site=site, cwd=tmp_path)

    return run
