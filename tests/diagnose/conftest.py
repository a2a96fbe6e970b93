"""What these tests share: texts to diagnose, runs without a cluster, and the scratch Slurm of tests/slurm."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpc_llm.diagnose import Diagnosis, diagnose_stream

ROOT = Path(__file__).parents[2]
for folder in ("tests/slurm", "tests/worker", "benchmarks"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture
def diagnose() -> Callable[[str | bytes], Diagnosis]:
    """The diagnosis of a text."""

    def of(text: str | bytes) -> Diagnosis:
        return diagnose_stream(io.BytesIO(text.encode() if isinstance(text, str) else text))

    return of


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A running Slurm."""
    from scratch_slurm import ScratchSlurm, missing_tools

    lacking = missing_tools()
    if lacking and os.environ.get("CI"):
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    with ScratchSlurm(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
