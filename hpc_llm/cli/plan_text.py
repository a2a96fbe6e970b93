"""A plan for reading: all of it with its origins, or field by field what differs between two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hpc_llm.api.layout import WIDTH, arrow, folded
from hpc_llm.text.secrecy import find_secret, redacted
from hpc_llm.text.secret_values import HIDDEN
from hpc_llm.text.shown import one_line

if TYPE_CHECKING:
    from hpc_llm.planning.experiment import PlanWithOrigins

_TELLS_NOTHING = ("default", "request", "not set", "template")
_ABSENT = "-"
_NAMES = 20
"""Characters of most names of fields."""


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> value of all that is in a plan, an empty mapping as such.

    >>> flat({"a": {"b": 1, "c": {}}, "d": [1]})
    {'a.b': 1, 'a.c': {}, 'd': [1]}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """`field: old → new` for each value that two plans do not share."""
    before, after = flat(old), flat(new)
    for name in dict.fromkeys((*after, *before)):
        if _is_told_within(name, before, after) or _is_told_within(name, after, before):
            continue
        if name in before and name in after and _is_same(before[name], after[name]):
            continue
        was, now = (_safe(name, side[name]) if name in side else _ABSENT for side in (before, after))
        yield f"{name}: {was} → {now}"


def _is_told_within(name: str, side: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a mapping is absent on one side, and each of its values on the other is told by itself."""
    return not side.get(name, "") and name not in other and any(path.startswith(f"{name}.") for path in other)


def _safe(name: str, value: Any) -> str:
    """The value for reading; what a record of an older version or of somebody else keeps may be a secret."""
    shown = _shown(value)
    return HIDDEN if isinstance(value, str) and find_secret(_nested(name, value)) is not None else redacted(shown)


def _nested(name: str, value: str) -> dict[str, Any]:
    """The value at its place in a plan."""
    first, _, rest = name.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _is_same(one: Any, other: Any) -> bool:
    """1e9 and 1000000000 are the same, 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def plan_table(planned: PlanWithOrigins, width: int = WIDTH) -> Iterator[str]:
    """All values of a plan, the DeepSpeed config included; where one comes from, unless that tells nothing."""
    for name, value in planned.plan.flat().items():
        origin = planned.origins.get(name, "")
        origin = "" if origin in _TELLS_NOTHING else origin
        if not isinstance(value, dict) or not value:
            yield from arrow(f"{name:<{_NAMES}}  {_safe(name, value)}", origin, width)
            continue
        yield from arrow(name, origin, width)
        for path, inner in flat(value).items():
            yield from folded(f"  {path:<{2 * _NAMES}}  {_safe(path, inner)}", width)


def _shown(value: Any) -> str:
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return value if isinstance(value, str) and value.isprintable() and value else json.dumps(value, ensure_ascii=False)


def name_of(planned: PlanWithOrigins) -> str:
    """What a run is called among those that are asked for together: its name in the study, or its method."""
    return one_line(planned.study.name) if planned.study else planned.plan.method


def explained(planned: tuple[PlanWithOrigins, ...], width: int = WIDTH) -> Iterator[str]:
    """The first plan whole, of the others what they have otherwise."""
    first, *others = planned
    number = f"the first of {len(planned)} runs on {first.plan.cluster}"
    which = f"the plan of {name_of(first)}, {number}" if others else "the plan"
    yield from folded(f"# {which}; an arrow says where a value comes from, without one it is a default", width)
    yield from plan_table(first, width)
    if others:
        other_way = "--run NAME" if first.study else "--method NAME"
        yield from folded(f"# the other runs: what they have otherwise; {other_way} shows the whole plan of one", width)
    for other in others:
        yield from folded(f"# {name_of(other)} instead of {name_of(first)}", width)
        for line in differences(first.plan.flat(), other.plan.flat()):
            yield from folded(line, width)
