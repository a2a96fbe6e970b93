"""A hub on this machine, and the command line that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fetched_models import Done
from hub_server import HubServer

from hpc_llm.cli import run

SETTINGS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HOME",
    "HF_TOKEN_PATH",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "MODELSCOPE_API_TOKEN",
)


@pytest.fixture(autouse=True)
def _nobodys_tokens(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, _nobodys_tokens: None) -> Iterator[HubServer]:
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def fetch(capsys: pytest.CaptureFixture[str]) -> Any:
    """`fetch("NAME", "--to", "DIR", ...)` in this process."""

    def call(*arguments: str | Path) -> Done:
        code = run(["fetch", *map(str, arguments)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(code, captured.out, captured.err)

    return call
