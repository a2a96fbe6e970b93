"""Where a text says a name and its value on lines of their own, as manifests do: `- name: DB_PASSWORD`, then `value: …`.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpc_llm.text.assignments import Assigned, is_secret_value
from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.secret_names import kind_of

_BLANKS = r"[\ \t]{0,80}"
_LABEL = r"(?:\[?[A-Za-z]{0,10}\d{1,6}\]?:[\ \t])?"
"""What a launcher puts before the lines of a rank."""
_END = rf"{_BLANKS},?{_BLANKS}\r?\n{_LABEL}{_BLANKS}"
_OTHERS = rf"""(?:(?!["']?(?:name|key|value)\b)["']?[A-Za-z][\w.-]{{0,60}}["']?{_BLANKS}[:=][^\n]{{0,200}}\n{_LABEL}{_BLANKS}){{0,2}}"""
"""Other fields between the two."""
_IS = rf"""["']?{_BLANKS}[:=]{_BLANKS}"""
_NAME = rf"""["']?(?:name|key){_IS}["']?(?P<name>[A-Za-z_][\w-]{{1,119}})["']?"""
_VALUE = rf"""["']?value{_IS}(?:"(?P<double>(?:[^"\\\n]|\\.){{1,500}})"?|'(?P<single>[^'\n]{{1,500}})'?|(?P<bare>[^\s"',#|>][^\n]{{0,499}}))"""
_NAME_FIRST = late_pattern(rf"(?<![\w.-]){_NAME}{_END}{_OTHERS}{_VALUE}", re.IGNORECASE | re.VERBOSE)
_VALUE_FIRST = late_pattern(
    rf"(?<![\w.-]){_VALUE}(?:(?<=,)|{_BLANKS},?){_BLANKS}\r?\n{_LABEL}{_BLANKS}{_OTHERS}{_NAME}",
    re.IGNORECASE | re.VERBOSE,
)
_BEHIND = late_pattern(r"\s#.*|[\s,}]+\Z")
"""What stands behind a value without quotes."""
_NAMES = ("name", "key")


def secrets_in_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets stand whose name is on another line, within the same entry.

    >>> text = "- name: DB_PASSWORD\\n  value: hunter2"
    >>> [text[start:end] for start, end in secrets_in_pairs(text)]
    ['hunter2']
    """
    if "\n" not in text or "value" not in text.lower():
        return
    for pattern in (_NAME_FIRST, _VALUE_FIRST):
        for found in pattern.finditer(text):
            which = next(group for group in ("double", "single", "bare") if found[group] is not None)
            value = found[which] if which != "bare" else _BEHIND.sub("", found[which])
            how = "tight" if found["name"].isupper() else "spaced"
            start = found.start(which)
            one = Assigned(found["name"], value, start, how, which != "bare", is_subscript=False, is_query=False)
            if kind_of(one.name) and is_secret_value(one):
                yield start, start + len(value)


def name_of_value(fields: Mapping[Any, Any]) -> str:
    """The name that a mapping of a name and a value says; "" for any other mapping."""
    lower = {str(field).lower(): value for field, value in fields.items()}
    name = next((lower[field] for field in _NAMES if field in lower), None) if "value" in lower else None
    return name if isinstance(name, str) else ""
