"""The packages that read a kind of data, brought in when data of that kind are read."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hpc_llm.errors import WorkerError


def needed(module: str, what: str) -> Any:
    """A module of a package that is not needed otherwise. Raises WorkerError where it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise WorkerError(
            f"{what} are read with the package {package}, which is missing here ({error}): python -m pip install {package}."
        ) from None
