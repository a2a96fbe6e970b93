"""What these tests share: texts to diagnose, runs without a cluster, and the scratch Slurm of tests/slurm."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_stream

ROOT = Path(__file__).parents[2]
for folder in ("tests/slurm", "tests/worker", "benchmarks"):
    sys.path.insert(0, str(ROOT / folder))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("scratch_fixtures")


@pytest.fixture
def diagnose() -> Callable[[str | bytes], Diagnosis]:
    """The diagnosis of a text."""

    def of(text: str | bytes) -> Diagnosis:
        return diagnose_stream(io.BytesIO(text.encode() if isinstance(text, str) else text))

    return of
