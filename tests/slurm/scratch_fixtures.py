"""The scratch Slurm and its site as fixtures, one of each for all test directories that ask for them.

A plugin and not a conftest, so that tests of another directory share the running cluster:

    def pytest_configure(config: pytest.Config) -> None:
        config.pluginmanager.import_plugin("scratch_fixtures")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from copied_ranks import text_for
from scratch_site import ScratchSite
from scratch_slurm import ScratchSlurm, missing_tools


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory, copied_commands: Path) -> Iterator[ScratchSlurm]:
    """A running Slurm with the partitions and GPUs of the three clusters."""
    lacking = missing_tools()
    if lacking and os.environ.get("CI"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    with ScratchSlurm(tmp_path_factory.mktemp("slurm")) as cluster:
        cluster.commands = copied_commands
        yield cluster


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> ScratchSite:
    """The modules and Python environments of the three clusters."""
    scratch = ScratchSite(tmp_path_factory.mktemp("site"))
    scratch.create()
    return scratch


@pytest.fixture(scope="session")
def quick_site(tmp_path_factory: pytest.TempPathFactory, copies: Path) -> ScratchSite:
    """The same, whose ranks begin as copies of one process, for what is not about how ranks start."""
    scratch = ScratchSite(tmp_path_factory.mktemp("site"))
    scratch.create(text_for(copies))
    return scratch
