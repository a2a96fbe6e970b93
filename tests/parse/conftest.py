"""Small logs in the formats of the programs; all of this text is our own."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_llm.diagnosis import Diagnosis, diagnose_stream
from hpc_llm.parsing import Reading, Row, Step, parse_stream, parse_stream_steps

REAL_LOGS = Path(__file__).resolve().parents[3] / "shared" / "logs"


@pytest.fixture
def read() -> Callable[..., Reading]:
    """Parse a text as if it were a log file."""

    def parse(text: str | bytes, name: str = "job.log", verbose: bool = False) -> Reading:
        return parse_stream(name, io.BytesIO(text if isinstance(text, bytes) else text.encode()), verbose=verbose)

    return parse


@pytest.fixture
def row(read: Callable[..., Reading]) -> Callable[..., Row]:
    """Parse a text that holds one run."""

    def parse(text: str | bytes, name: str = "job.log") -> Row:
        rows = read(text, name).rows
        assert len(rows) == 1, rows
        return rows[0]

    return parse


@pytest.fixture
def steps() -> Callable[..., list[Step]]:
    """The steps of a text."""

    def parse(text: str | bytes, name: str = "job.log") -> list[Step]:
        return list(parse_stream_steps(name, io.BytesIO(text if isinstance(text, bytes) else text.encode())))

    return parse


@pytest.fixture
def real_logs() -> Path:
    """A collection of logs that is not part of this repository."""
    if not REAL_LOGS.is_dir():
        pytest.skip(f"no collection of real logs at {REAL_LOGS}")
    return REAL_LOGS


@pytest.fixture
def diagnose_text() -> Callable[[str], Diagnosis]:
    """The diagnosis of a text, which agrees with its row."""
    return lambda text: diagnose_stream(io.BytesIO(text.encode()))
