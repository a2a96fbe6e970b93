"""A published figure that a run is to be held against: its value, its unit, where it stands, what it was measured on.

It is read from an experiment file and kept in the run's record. Nothing that is measured or shown as measured uses it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hpc_llm.errors import RequestError, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.records.metrics import is_figure
from hpc_llm.records.possible import is_count, is_known, is_possible, range_of

_KEYS = ("value", "unit", "source", "hardware", "tolerance", "weights")
_NEEDED = _KEYS[:4]
_WEIGHTS = ("checkpoint", "random")
_LONGEST = 300
"""Letters of a source or of the name of some hardware."""
_SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1.0} | {
    f"{letter}{kind}B": float(base ** (power + 1))
    for power, letter in enumerate("KMGT")
    for kind, base in (("", 1000), ("i", 1024))
}
_PLAIN = {"1": 1.0}
_UNITS: tuple[tuple[str, Mapping[str, float]], ...] = (
    (r"_bytes$", _BYTES),
    (r"_s(?:_mean|_p\d+)?$", _SECONDS),
    (r"tflops", {"TFLOP/s": 1.0, "GFLOP/s": 1e-3, "PFLOP/s": 1e3}),
    (r"^mfu$", {"%": 0.01, "1": 1.0}),
    (r"loss", {"nats": 1.0, "bits": math.log(2)}),
    (r"_j$", {"J": 1.0, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6}),
    (r"_hours$", {"h": 1.0}),
)
"""What the name of a result ends in or holds -> how many of the result's own unit each unit is."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """One published figure."""

    value: float
    """In `unit`."""
    unit: str
    source: str
    hardware: str
    """`NAME` or `N x NAME` of the GPUs that it was measured on."""
    tolerance: float | None = None
    """Share of the value by which a measurement may differ; None where nobody says."""
    weights: str | None = None
    """`checkpoint` or `random`, where the figure depends on which of them a run begins with (and on the tokens that come with them)."""

    def to_dict(self) -> dict[str, Any]:
        """JSON types, under the keys of an experiment file."""
        return {name: value for name, value in asdict(self).items() if name != "weights" or value is not None}

    def in_unit_of(self, result: str) -> float:
        """The value in the unit that the result of that name is recorded in."""
        return self.value * units_of(result)[self.unit]


def units_of(result: str) -> Mapping[str, float]:
    """Each unit that a result of that name may be given in -> how many of the recorded unit it is.

    >>> units_of("tokens_per_second"), units_of("step_time_s_mean")["ms"]
    ({'tokens/s': 1.0}, 0.001)
    """
    rate = re.search(r"([a-z]+)_per_second(?:_per_gpu)?$", result)
    if rate is not None:
        return {f"{rate[1]}/s": 1.0}
    return next((units for pattern, units in _UNITS if re.search(pattern, result)), _PLAIN)


def read_references(value: Any, results: tuple[str, ...], where: str) -> dict[str, Reference]:
    """The references of one run by the name of their result, which is one of `results`.

    Raises:
        RequestError: one is not written so; `where` names file and run.
    """
    if not isinstance(value, Mapping) or not value:
        raise RequestError(f"{where}: write it as {{RESULT: {{{', '.join(_KEYS)}}}}}, e.g. RESULT tokens_per_second.")
    return {str(name): read_reference(str(name), one, results, f"{where}.{name}") for name, one in value.items()}


def read_reference(name: str, value: Any, results: tuple[str, ...], where: str) -> Reference:
    """The reference for one result; raises as `read_references` does."""
    if name not in results:
        raise RequestError(f"{where.rpartition('.')[0]}: " + unknown_name("result", name, results))
    if not isinstance(value, Mapping):
        raise RequestError(f"{where}: write it as {{{', '.join(_KEYS)}}}.")
    for key in value:
        if key not in _KEYS:
            raise RequestError(f"{where}: " + unknown_name("key", str(key), _KEYS))
    missing = [key for key in _NEEDED if value.get(key) in (None, "")]
    if missing:
        raise RequestError(f"{where} lacks {' and '.join(missing)}: a figure without them cannot be compared with.")
    units = units_of(name)
    if str(value["unit"]) not in units:
        raise RequestError(f"{where}: {name} is not given in {value['unit']!r}. Valid units: {', '.join(units)}.")
    tolerance = value.get("tolerance")
    if tolerance is not None and not 0 <= _number(tolerance, f"{where}.tolerance") <= 1:
        raise RequestError(f"{where}: tolerance is {tolerance!r}, a share from 0 to 1 is needed: 0.05 is 5 %.")
    weights = value.get("weights")
    if weights is not None and weights not in _WEIGHTS:
        raise RequestError(f"{where}: " + unknown_name("kind of weights", str(weights), _WEIGHTS))
    found = Reference(
        value=_number(value["value"], f"{where}.value"),
        unit=str(value["unit"]),
        source=_text(value["source"], f"{where}.source"),
        hardware=_text(value["hardware"], f"{where}.hardware"),
        tolerance=None if tolerance is None else float(tolerance),
        weights=weights,
    )
    _refuse_impossible(name, found, where)
    return found


def _refuse_impossible(name: str, found: Reference, where: str) -> None:
    """Raise RequestError for a figure that no run can have, as a rate below 0: nothing could be held against it."""
    value = found.in_unit_of(name)
    if is_known(name) and not is_possible(name, math.floor(value) if is_count(name) else value):
        raise RequestError(
            f"{where}.value: no run can have {found.value:g} {found.unit}. {name} is {range_of(name)} ({_recorded(name)})."
        )


def _recorded(name: str) -> str:
    """The unit that a result is recorded in."""
    return next(unit for unit, factor in units_of(name).items() if factor == 1.0)


def _number(value: Any, where: str) -> float:
    if not is_figure(value):
        raise RequestError(f"{where} is {value!r}, a number is needed.")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _LONGEST:
        raise RequestError(
            f"{where} is {str(value)[:40]!r}: one line of text is needed, of at most {_LONGEST} letters."
        )
    return value.strip()
