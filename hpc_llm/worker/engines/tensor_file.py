"""Files of tensors in PyTorch's own format, read without running what they say."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from hpc_llm.errors import ModelFileError


def load_tensors(path: Path, whose: str, way_on: str) -> Any:
    """The tensors and plain values of a file, on the host. Raises ModelFileError where it holds anything else, or half of it.

    PyTorch's own words for it are not passed on: they advise to run the file's code.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelFileError(
            f"{whose} is not used: {path.name} is damaged, or holds more than tensors, and code from a file is never run. {way_on}"
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ModelFileError(f"{whose} is damaged: {path.name} cannot be read. {way_on}") from None
