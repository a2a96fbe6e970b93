"""The fitted constants of `time_constants.json` with their record, and those that one cluster's own runs gave."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from hpc_llm.estimating.rates import Fitted, Program


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the constants that come along were fitted to."""

    runs: int
    gpus: tuple[str, ...]
    """Kinds of GPUs (`rates.gpu_kind`)."""
    engines: tuple[str, ...]
    date: str
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class TimeConstants:
    fitted: Fitted
    program: Program
    record: Record


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What the finished runs of a cluster say of its machines."""

    cluster: str
    values: dict[str, float]
    """Names of Fitted with what replaces them."""
    gpus: tuple[str, ...]
    """Kinds of GPUs that the runs were on."""
    offloaded: bool
    """Whether one of the runs had its optimizer on the host."""
    several_nodes: bool
    spread: float
    """Factor within which nine of ten of the runs are of their prediction, of at least MIN_SPREAD."""
    runs: tuple[str, ...]
    date: str
    versions: dict[str, str]

    def applied(self, fitted: Fitted) -> Fitted:
        """The constants as the cluster has them."""
        return replace(fitted, **self.values)


MIN_SPREAD = 1.2
"""No calibration promises more: times of shared machines move by ten per cent and more."""


@lru_cache(maxsize=1)
def time_constants() -> TimeConstants:
    """The constants that come along."""
    data = json.loads((files(__package__) / "time_constants.json").read_text(encoding="utf-8"))
    record = data["record"]
    return TimeConstants(
        fitted=Fitted(**data["machine"]),
        program=Program(**data["program"]),
        record=Record(
            runs=record["runs"],
            gpus=tuple(record["gpus"]),
            engines=tuple(record["engines"]),
            date=record["date"],
            versions=record["versions"],
        ),
    )


def calibration_from(values: Mapping[str, Any]) -> Calibration:
    """A calibration from what a file holds. Raises KeyError, TypeError or ValueError where that is none."""
    known = {one.name for one in fields(Fitted)}
    constants = {str(name): float(value) for name, value in values["values"].items()}
    for name, value in constants.items():
        if name not in known or not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}: {value}")
    spread = float(values["spread"])
    if not MIN_SPREAD <= spread < 100:
        raise ValueError(f"spread: {spread}")
    return Calibration(
        cluster=str(values["cluster"]),
        values=constants,
        gpus=tuple(map(str, values["gpus"])),
        offloaded=bool(values["offloaded"]),
        several_nodes=bool(values["several_nodes"]),
        spread=spread,
        runs=tuple(map(str, values["runs"])),
        date=str(values["date"]),
        versions={str(name): str(version) for name, version in values["versions"].items()},
    )
