"""One value of an experiment in the type that its option has, from YAML or from a program."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hpc_llm.errors import RequestError
from hpc_llm.planning.experiment import Experiment
from hpc_llm.text.numbers import are_several, without_commas

if TYPE_CHECKING:
    from hpc_llm.planning.other_words import Spelling

LISTS = ("data", "sbatch", "set")
INTEGERS = {f.name for f in fields(Experiment) if f.type == "int | None"}
NUMBERS = {f.name for f in fields(Experiment) if f.type == "float | None"}
NAMES = tuple(f.name for f in fields(Experiment))
"""The options of an experiment."""

_BETWEEN = re.compile(r"[\s;]+")
"""What stands between names that are meant as several, in place of a comma; no name has it in itself."""

_ANEW = (
    ": beside --method or an experiment file --resume takes the checkpoint of the run alone. Leave these out to ask for the same again, or "
    "say all of it anew. "
)
NO_METHOD = "ddp"
"""Stands in the plan of a task that knows no method."""


def names_in(value: Any) -> list[str]:
    """The clusters or methods of a list, or of a text with commas."""
    names = [str(name).strip() for name in (value if isinstance(value, (list, tuple)) else str(value or "").split(","))]
    return [name for name in names if name]


def swept(values: Mapping[str, Any], key: str) -> list[str]:
    """The names that options give for `cluster` or `method`; a task that knows no method needs none.

    Raises:
        RequestError: there is none.
    """
    from hpc_llm.planning.tasks import find

    if key == "method" and find(values.get("task", "pretrain")).is_on_host:
        return [NO_METHOD]
    names = names_in(values.get(key))
    if not names:
        why = _ANEW if values.get("resume") else ". "
        raise RequestError(f"no {key} is given{why}Use --{key} NAME (in Python {key}=); `hpc-llm {key}s` lists them.")
    for name in names:
        parts = _BETWEEN.split(name)
        is_list = len(parts) > 1 and all(part and part == part.strip("+") for part in parts)
        if is_list and os.sep not in name:
            raise RequestError(f"{key} '{name}': several names are separated by commas, as in {','.join(parts)}.")
    return names


def answered(name: str, spelling: Spelling, value: str, command: str = "") -> str | None:
    """What is said of an option that there is not, where other programs have it, or where it is a field of the plan."""
    from hpc_llm.planning import other_words
    from hpc_llm.planning.settings import is_field

    path = name.lstrip("-").replace("-", "_")
    return other_words.answered("option", name, spelling, command, value, is_field(path))


def typed(where: str, name: str, value: Any) -> Any:
    """A value of the file in the type that the flag would have."""
    if value is None and name not in LISTS:
        raise RequestError(f"{where}: {name} has nothing behind it. Give a value, or leave it out.")
    if name in LISTS:
        return [
            text
            for item in (value if isinstance(value, (list, tuple)) else [value])
            for text in _items(where, name, item)
        ]
    if name in INTEGERS:
        if isinstance(value, bool) or not isinstance(value, int):
            number = without_commas(text := str(value))
            form = f" Write {number}, without commas." if number else ""
            if isinstance(value, str) and value.strip().isdecimal():
                form = f" Quotes make a text of it: write {value.strip()} without them."
            form += f" Several are a list under matrix: [{text}]." if are_several(text) else ""
            raise RequestError(f"{where}: {name} is {value!r}, a whole number is needed.{form}")
        return value
    if name in NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise RequestError(f"{where}: {name} is {value!r}, a number is needed.")
        return value
    if isinstance(value, (list, tuple)) and name in ("cluster", "method"):
        return [str(v) for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, dict, bool)):
        raise RequestError(f"{where}: {name} is {value!r}, text is needed.")
    if isinstance(value, float):  # 1.10 would become 1.1, and 1e5 100000.0
        raise RequestError(
            f"{where}: {name} is read as the number {value!r}. Put it in quotes to keep it as it is written."
        )
    return str(value)


_FILLED = {
    "data": "Give a path or the name of a known set, or a list of these, as in [train=PATH, validation=PATH]",
    "set": "Give keys with values, as in {optimizer.lr: 1e-4}",
    "sbatch": "Give options with values, as in {qos: high}",
}
"""What stands behind a name."""


def _items(where: str, name: str, item: Any) -> Iterator[str]:
    """What the repeatable flag `name` would have been given, from one item of the file's list or mapping."""
    if isinstance(item, (str, os.PathLike)):
        yield os.fspath(item)
    elif not isinstance(item, dict) or name == "data":
        if item is None:
            raise RequestError(
                f"{where}: {name} has nothing behind it. {_FILLED.get(name, 'Give a value')}, or leave it out."
            )
        raise RequestError(f"{where}: {name} holds {item!r}. {_FILLED.get(name, 'Give text')}.")
    elif name == "sbatch":
        off = next((key for key, value in item.items() if value is False), None)
        if off is not None:
            raise RequestError(
                f"{where}: sbatch.{off} is false, and nothing asks for it unless it is named. Leave it out."
            )
        unfit = next((key for key, value in item.items() if isinstance(value, (list, dict, float))), None)
        if unfit is not None:
            raise RequestError(
                f"{where}: sbatch.{unfit} is {item[unfit]!r}: write it as text, in quotes, as sbatch reads it."
            )
        yield from (str(k) if v in (None, True) else f"{k}={v}" for k, v in item.items())
    else:
        yield from _each_once(where, settings(item, where=f"{where}: "))


def _each_once(where: str, pairs: Iterable[str]) -> Iterator[str]:
    """The settings of one mapping; raises RequestError where two of them set one thing, as nested and as dotted names can."""
    from hpc_llm.api.amounts import path_of

    said: dict[str, str] = {}
    for pair in pairs:
        first = said.setdefault(path_of(pair), pair)
        if first != pair:
            raise RequestError(f"{where}: set: {first} and {pair} say two things of one setting. Keep one of them.")
        yield pair


def settings(mapping: dict[str, Any], prefix: str = "", where: str = "") -> Iterator[str]:
    """`PATH=VALUE` for each value of a mapping of plan fields, however deep it is; `where` begins what is said of one that is none.

    Raises:
        RequestError: a text is none, as a variable is, and would be written otherwise than it was.
    """
    from hpc_llm.planning.settings import is_text

    for key, value in mapping.items():
        place = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from settings(value, f"{place}.", where)
            continue
        if (value is None or isinstance(value, float)) and is_text(place):
            said = "has nothing behind it. Give text, '' for an empty one, or leave it out"
            if value is not None:  # 6.10 would become 6.1
                said = f"is read as the number {value!r}. Put it in quotes to keep it as it is written"
            raise RequestError(f"{where}set.{place} {said}.")
        # --set reads its value as YAML, except for variables, which are always text.
        is_itself = isinstance(value, str) and (is_text(place) or _reads_as_itself(value))
        yield f"{place}={value if is_itself else json.dumps(value)}"


def not_replaced(below: list[str], above: list[str]) -> list[str]:
    """What is said below of other keys than above, which wins, over what its keys exclude too."""
    from hpc_llm.site.sbatch_options import rivals

    keys = {flag.partition("=")[0].strip().removeprefix("--") for flag in above}
    keys |= {other for key in keys for other in rivals(key)}
    return [item for item in below if item.partition("=")[0].strip().removeprefix("--") not in keys]


def _reads_as_itself(text: str) -> bool:
    """Whether YAML takes the text for the same text, and not for a number, a list or nothing that it could read."""
    from hpc_llm.text.yaml_text import parse_yaml

    try:
        return bool(parse_yaml(text, "a setting") == text)
    except RequestError:
        return False
