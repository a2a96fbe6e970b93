"""The few figures that cannot be counted: fitted once to measured runs, kept in a file with their record."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Constants:
    """Sizes in bytes; pairs are factors of what is predicted, the least and the most that it may be."""

    host_program: int
    """Of one rank: Python, torch and what they load."""
    host: tuple[float, float]
    host_offload: tuple[float, float]
    """The same where ZeRO-3 offloads."""
    host_capacity: float
    """Part of a node's memory that a job may count on."""
    device_capacity: tuple[float, float]
    """Part of a GPU's memory, as its profile says it, that programs get."""
    peak: tuple[float, float]
    extra: int
    """On every device: batches, rotary positions, workspaces of libraries inside the allocator."""


@functools.cache
def constants() -> Constants:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    values: dict[str, Any] = {one.name: found[one.name] for one in fields(Constants)}
    return Constants(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
