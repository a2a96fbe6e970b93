"""Names of rows that stand beside an axis or in a legend: short, and told apart all the same."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

LONGEST = 40
"""Characters of a name in a plot."""
_LONGEST_VALUE = 40
_SAYS_NOTHING = ("enabled", "type", "name")
"""Last parts of a path that alone do not say of what they are."""


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, of which the middle is left out where it is too long: its end tells it apart as often as its beginning.

    >>> shortened("lora [data=a-long-name-of-a-file.jsonl]", 20)
    'lora [data…le.jsonl]'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end].rstrip()}…{text[-end:].lstrip()}"


def apart(names: Sequence[str], most: int = LONGEST) -> dict[str, str]:
    """The short form of each name; those that it would make equal are numbered.

    >>> apart(["aaaaXaaaa", "aaaaYaaaa", "b"], 7)
    {'aaaaXaaaa': 'aa…a #1', 'aaaaYaaaa': 'aa…a #2', 'b': 'b'}
    """
    different = list(dict.fromkeys(names))
    made = {name: shortened(name, most) for name in different}
    for short in dict.fromkeys(made.values()):
        members = [name for name in different if made[name] == short]
        if len(members) > 1:
            made |= {
                name: numbered(shortened(name, most - 3 - len(members) // 10), k) for k, name in enumerate(members, 1)
            }
    return made


def short_paths(paths: Collection[str]) -> dict[str, str]:
    """The end of each path that tells it from the others, of its parts as few as do.

    >>> sorted(short_paths(["zero.offload_param.pin_memory", "zero.offload_optimizer.pin_memory", "optimizer.lr", "amp.enabled"]).values())
    ['amp.enabled', 'lr', 'offload_optimizer.pin_memory', 'offload_param.pin_memory']
    """
    found = {}
    for path in paths:
        parts = path.split(".")
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        told = (
            one
            for one in ends
            if one not in _SAYS_NOTHING and not any(f".{other}".endswith(f".{one}") for other in paths if other != path)
        )
        found[path] = next(told, path)
    return found


def numbered(text: str, number: int) -> str:
    return f"{text} #{number}"


def shown_setting(name: str, value: object) -> str:
    """A setting with its value; one that has none by its name.

    >>> shown_setting("mem", "2048M"), shown_setting("mem", None)
    ('mem=2048M', 'without mem')
    """
    return f"without {name}" if value is None else f"{name}={shown_value(value)}"


def shown_value(value: object) -> str:
    """A value of a setting, of paths their last parts.

    >>> shown_value(["/work/me/qa.jsonl", "validation=/work/me/dev.jsonl"]), shown_value(4e9)
    ('qa.jsonl + validation=dev.jsonl', '4e9')
    """
    if isinstance(value, (list, tuple)):
        return " + ".join(map(shown_value, value)) or "none"
    if isinstance(value, str):
        return shortened(_last_part(value), _LONGEST_VALUE)
    return f"{value:g}".replace("e+0", "e") if isinstance(value, float) else str(value)


def _last_part(text: str) -> str:
    """Of a path from the root its end, behind the split or the set that it is of; anything else as it is."""
    of, sign, path = text.partition("=") if not text.startswith("/") else ("", "", text)
    is_path = path.startswith("/") and path.strip("/") != "" and (not sign or of.replace("-", "_").isidentifier())
    return f"{of}{sign}{os.path.basename(path.rstrip('/'))}" if is_path else text


def with_short_names(records: Sequence[dict[str, Any]], methods: Mapping[str, str]) -> list[dict[str, Any]]:
    """The points of a figure with names as they stand in a plot: that of a row is no other row's within its panel."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in records:
        if "name" in one:
            rows = found.setdefault((one["panel"], one["name"]), [])
            rows += [one["row"]] if one["row"] not in rows else []
    full = {
        (panel, name, row): name if len(rows) == 1 else numbered(name, k)
        for (panel, name), rows in found.items()
        for k, row in enumerate(rows, 1)
    }
    short = apart(list(full.values()))
    return [
        {**one, "method": methods[one["method"]]}
        | ({"name": short[full[one["panel"], one["name"], one["row"]]]} if "name" in one else {})
        for one in records
    ]
