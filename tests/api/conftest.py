"""Runs that were submitted through the package, once for all tests: two that complete and one that fails."""

from __future__ import annotations

import pytest
from submitted import ASKED, Trained

import hpc_llm


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two runs of a sweep that completed, and one whose data holds nothing to train on."""
    folder = tmp_path_factory.mktemp("api")
    empty = folder / "empty.txt"
    empty.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # runs are found from anywhere afterwards
        good = hpc_llm.submit(ASKED, method=["z2o", "z3"], warmup_steps=2, logs="runs")
        [bad] = hpc_llm.submit(ASKED, method="ddp", data=[empty], warmup_steps=2, logs="runs", run_id="bad")
    hpc_llm.wait([*good, bad])
    return Trained(folder / "runs", good, bad)
