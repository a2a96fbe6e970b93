"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hpc_llm

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(hpc_llm.__path__, "hpc_llm.")
    if not module.name.startswith("hpc_llm.worker.")  # they need torch
)


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) > 10


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
