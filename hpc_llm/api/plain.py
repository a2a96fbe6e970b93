"""What a program passes, in the types that a YAML file would hold: a path is text, a number of numpy a number."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from hpc_llm.errors import RequestError

_DEEPEST = 50
"""Levels of mappings and lists; no experiment has ten."""


def plain(value: Any, place: str, level: int = 0) -> Any:
    """The same value made of text, numbers, lists and dictionaries alone.

    Raises:
        RequestError: a value of another kind at `place`. The value itself is not repeated, as it might be a secret.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return _exact(value)
    if isinstance(value, os.PathLike) and isinstance(path := os.fspath(value), str):
        return path
    if level > _DEEPEST:
        raise RequestError(
            f"{place.partition('.')[0] or 'the experiment'} holds itself, or has more than {_DEEPEST} levels: give values that end."
        )
    if isinstance(value, Mapping):
        return {
            _key(key, place): plain(item, f"{place}.{key}" if place else str(key), level + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, place, level + 1) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a single value of an array, as numpy's booleans
        return plain(value.item(), place, level + 1)
    raise RequestError(
        f"{place or 'the experiment'} is of type {type(value).__name__}, which no experiment can hold: "
        "give text, a number, a path, a list or a mapping."
    )


def _exact(value: Any) -> Any:
    """Without the class of its own that a number or text may have, as numpy's floats and members of enumerations do."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else str.__str__(value)


def _key(key: Any, place: str) -> Any:
    if isinstance(key, (str, int, float)):
        return key
    raise RequestError(f"{place or 'the experiment'} has a key of type {type(key).__name__}: names are text.")
