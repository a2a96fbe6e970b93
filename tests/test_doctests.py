"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import hpc_llm

PACKAGE = Path(hpc_llm.__file__).parent


def has_examples(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return b">>> " in (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_bytes()


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hpc_llm.__path__, "hpc_llm.")
    if not module.name.startswith("hpc_llm.worker.") and has_examples(module.name)  # the worker needs torch
)


def test_there_are_examples() -> None:
    assert len(MODULES) > 10


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))
    assert done.attempted and not done.failed
