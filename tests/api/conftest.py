"""Runs that were submitted through the package, once for all tests: two that complete and one that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from copied_ranks import variables_for
from submitted import ASKED, Trained

import hpc_llm
from hpc_llm.worker.preparing.build import prepare
from hpc_llm.worker.tasks.prepare import request_of


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, copies: Path) -> Trained:
    """Two runs of a sweep that completed, and one whose data hold tokens that no model has."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "text.txt").write_text("some words " * 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # runs are found from anywhere afterwards
        [asked] = hpc_llm.plan(cluster="local", task="prepare", model="tiny", data=["text.txt"])
        corpus = prepare(request_of(asked.plan), folder / "caches", lambda text: None)
        tokens = corpus.folder / "train.tokens"
        with pytest.MonkeyPatch.context() as at_once:
            for name, value in variables_for(copies).items():
                at_once.setenv(name, value)
            good = hpc_llm.submit(ASKED, method=["z2o", "z3"], warmup_steps=2, logs="runs")
        [bad] = hpc_llm.submit(ASKED, method="ddp", data=[corpus.folder], warmup_steps=2, logs="runs", run_id="bad")
        tokens.write_bytes(b"\x7f" * tokens.stat().st_size)  # long before its rank has imported what it reads them with
    hpc_llm.wait([*good, bad])
    return Trained(folder / "runs", good, bad)
