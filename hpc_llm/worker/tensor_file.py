"""Files of tensors in PyTorch's own format, read without running what they say."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from hpc_llm.errors import ModelFileError


def load_tensors(path: Path, whose: str, way_on: str) -> Any:
    """The tensors and plain values of a file, on the host. Raises ModelFileError where it holds anything else, or half of it."""
    return _loaded(path, whose, way_on, map_location="cpu")


def check_tensors(path: Path, whose: str, way_on: str) -> dict[str, dict[str, str]]:
    """The type of each of a file's tensors by name, as a table of safetensors says it. Raises ModelFileError where it holds
    anything else; of today's format their values are not read."""
    found = _loaded(path, whose, way_on, map_location="meta", mmap=zipfile.is_zipfile(path))
    if not isinstance(found, dict) or not all(isinstance(one, torch.Tensor) for one in found.values()):
        raise ModelFileError(f"{whose} is not used: {path.name} holds no tensors by name, or more than these. {way_on}")
    return {str(name): {"dtype": _word_of(one.dtype)} for name, one in found.items()}


def _word_of(kind: torch.dtype) -> str:
    """A type in the words of safetensors, for what they tell apart: whole numbers and fractions.

    >>> _word_of(torch.int16), _word_of(torch.bfloat16)
    ('I16', 'BF16')
    """
    name = str(kind).removeprefix("torch.")
    bits = name.lstrip("abcdefghijklmnopqrstuvwxyz_")
    if kind.is_floating_point:
        return f"{'BF' if name.startswith('b') else 'F'}{bits}"
    return "BOOL" if kind == torch.bool else f"{'U' if 'uint' in name else 'I'}{bits or 8}"


def _loaded(path: Path, whose: str, way_on: str, **how: Any) -> Any:
    """PyTorch's own words for what it refuses are not passed on: they advise to run the file's code."""
    try:
        return torch.load(os.fspath(path), weights_only=True, **how)
    except pickle.UnpicklingError:
        raise ModelFileError(
            f"{whose} is not used: {path.name} is damaged, or holds more than tensors, and code from a file is never run. {way_on}"
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ModelFileError(f"{whose} is damaged: {path.name} cannot be read. {way_on}") from None
