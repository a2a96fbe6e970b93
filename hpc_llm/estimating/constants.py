"""The few figures that cannot be counted: fitted to measured runs by `benchmarks/fit_estimates.py`, in a file with their record."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class Constants:
    """Sizes are bytes unless they say otherwise."""

    workspaces: int
    """On every device inside the allocator: batches, rotary positions, workspaces of libraries."""
    host_program: int
    """Of one rank: Python, torch and what they load."""
    host_start: int
    """Of one rank while its model is made, before training loads the rest."""
    cpu_program: int
    """The same where nothing for GPUs is loaded, of torch's build for CPUs."""
    precision: Mapping[str, float]
    """Kind of run -> how far the device's peak may be from what is counted, as a share."""
    host_precision: Mapping[str, float]
    slack: Mapping[str, float]
    """Engine -> share of the peak that torch's allocator holds and cannot use when the device is full."""
    outside: Mapping[str, tuple[float, float]]
    """GiB beside the allocator, the least and the most: context, libraries, collectives."""
    device_capacity: tuple[float, float]
    """Part of a GPU's memory, as its profile says it, that programs get."""
    host_capacity: float
    """Part of a node's memory that a job may count on."""


@functools.cache
def constants() -> Constants:
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return Constants(**{one.name: found[one.name] for one in fields(Constants)})
