"""JSON of a record that somebody may have damaged: plain values of bounded depth, and no number that is none.

Standard library only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from hpc_llm.text.json_weight import is_too_heavy


class DamagedRecordError(ValueError):
    """A record is there and cannot be read; the message says why in a clause."""


def mapping(value: object) -> dict[str, Any]:
    """A copy of what a record holds where an object belongs; an empty one of whatever else is there."""
    return dict(value) if isinstance(value, Mapping) else {}


def _no_number(constant: str) -> None:
    """NaN and the infinities are no JSON: nobody knows the figure."""


def _integer(text: str) -> int | None:
    """The integer; None where no figure of a run is that large."""
    return int(text) if len(text) < _LONG_NUMBER else None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names stand there once: of two values of one name nobody knows which is meant."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise DamagedRecordError("it gives one name several values")
    return value


_DECODER = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_once)
_CAREFUL = json.JSONDecoder(parse_constant=_no_number, parse_int=_integer, parse_float=_finite, object_pairs_hook=_once)
"""The same for numbers that a float cannot hold; slower."""


def _undoubted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a foreign file without the names to which it gives several values."""
    value = dict(pairs)
    if len(value) != len(pairs):
        values: dict[str, Any] = {}
        doubted = {name for name, one in pairs if values.setdefault(name, one) != one}
        value = {name: one for name, one in value.items() if name not in doubted}
    return value


_MEASURED = json.JSONDecoder(parse_int=_integer, object_pairs_hook=_undoubted)
_LONG_NUMBER = 19
_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_LONG, _HIGH, _PLUS = b"0" * _LONG_NUMBER, b"0e000", b"0e+000"
"""What a text with a number too large for a float holds, once all digits are made one. A pattern takes ten times as long."""
TOO_HEAVY = "it holds more values than are read at once"
_DEEPEST = 100
"""Levels of a record, which has five; what walks through one calls itself."""


def decoded(text: str) -> Any:
    """The value of a JSON text. Raises ValueError or RecursionError, DamagedRecordError among them."""
    whole = text.encode("utf-8", "surrogatepass")
    if is_too_heavy(whole):
        raise DamagedRecordError(TOO_HEAVY)
    shape = whole.translate(_SHAPE)
    value = (_CAREFUL if _LONG in shape or _HIGH in shape or _PLUS in shape else _DECODER).decode(text)
    if text.count("[") + text.count("{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise DamagedRecordError("it is nested too deep")
    return value


def figures(text: str | bytes) -> Any:
    """The value of a JSON text of another program, in which NaN and the infinities are what it measured.

    Raises ValueError, DamagedRecordError among them.
    """
    if is_too_heavy(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text):
        raise DamagedRecordError(TOO_HEAVY)
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        value = _MEASURED.decode(text)
    except RecursionError:
        raise DamagedRecordError("it is nested too deep") from None
    if text.count("[") + text.count("{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise DamagedRecordError("it is nested too deep")
    return value


def _depth(value: Any) -> int:
    """How many levels of lists and objects there are, counted without calling itself."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (list, dict)) and one]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth
