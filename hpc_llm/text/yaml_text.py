"""YAML as it comes from a stranger: plain values only, in bounded time and memory, and without the surprises of YAML 1.1.

The text is looked through as a stream of events first, which needs no memory of its own; only what keeps to the limits
is built. Building without that look would crash the interpreter where brackets are nested deep, and fill the memory
where aliases multiply.
"""

from __future__ import annotations

import math
import os
import re
import stat
from pathlib import Path
from typing import Any, ClassVar

import yaml

from hpc_llm.errors import ProfileError
from hpc_llm.text.yaml_slips import slip

LARGEST_BYTES = 1 << 20
"""Of one text; the longest profile that comes with hpc-llm has 4 kB."""
DEEPEST = 50
"""Levels of lists and mappings, aliases followed."""
MOST_VALUES = 20_000
"""Values, aliases followed."""
LARGEST_INTEGER = 2**63 - 1
"""Nothing that a plan holds counts further, and JSON readers, Slurm and torch stop there."""
_SHOWN = 60
_MERGE = "tag:yaml.org,2002:merge"
_TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
_TAGS = ("tag:yaml.org,2002:str", "!")
"""All that may be written before a value: it says that the value is text."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without the surprises of 1.1: `24:00:00`, `no` and `2024_01` stay text, `1e9` is a number, a key comes once."""

    yaml_implicit_resolvers: ClassVar = {
        key: [(tag, pattern) for tag, pattern in pairs if tag.rsplit(":", 1)[-1] in ("null", "merge")]
        for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put what `<<` names beside the mapping's own keys, which win, as the first of several named does.

        PyYAML's own tells keys apart by the place of their text in memory since 6.0.4, and lost some.
        """
        merged: dict[Any, tuple[yaml.Node, yaml.Node]] = {}
        own = [pair for pair in node.value if pair[0].tag != _MERGE]
        for key, value in node.value:
            for part in self._merged(value) if key.tag == _MERGE else ():
                self.flatten_mapping(part)
                for pair in part.value:
                    merged.setdefault(_name(pair[0]), pair)
        names = {_name(key) for key, _ in own}
        node.value = [pair for name, pair in merged.items() if name not in names] + own

    @staticmethod
    def _merged(value: yaml.Node) -> list[yaml.MappingNode]:
        parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if not all(isinstance(part, yaml.MappingNode) for part in parts):
            raise _problem("<< takes a mapping, or a list of mappings", value)
        return list(parts)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float)):
                raise _problem("a key must be a name", key_node)
            if key in seen:
                raise _problem(f"key '{_short(str(key))}' comes twice", key_node)
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _name(key: yaml.Node) -> Any:
    """What two keys that are the same have in common."""
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = node.value
    if len(text) > len(str(LARGEST_INTEGER)) + 1 or abs(int(text)) > LARGEST_INTEGER:
        raise _problem(f"the number {_short(text)} is too large, {LARGEST_INTEGER} is the largest", node)
    return int(text)


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    text = node.value
    number = math.inf if text.lstrip("+-").lower() in (".inf", ".nan") else float(text)
    if not math.isfinite(number):
        raise _problem(f"the number {_short(text)} is not finite, and nothing can be set to it", node)
    return number


def _add_scalars() -> None:
    decimal = r"[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|[0-9]+[eE][-+]?[0-9]+"
    for name, pattern, first in (
        ("bool", r"^(?:true|false)$", "tf"),
        ("int", r"^(?:0|-?[1-9][0-9]*)$", "-0123456789"),
        ("float", rf"^[-+]?(?:{decimal}|\.(?:inf|Inf|INF|nan|NaN|NAN))$", "-+.0123456789"),
    ):
        _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), list(first))
    _Loader.add_constructor("tag:yaml.org,2002:int", _integer)
    _Loader.add_constructor("tag:yaml.org,2002:float", _float)


_add_scalars()


def _problem(what: str, place: Any) -> yaml.MarkedYAMLError:
    """An error at a node or an event."""
    return yaml.MarkedYAMLError(problem=what, problem_mark=place.start_mark)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `where` names it in an error, beside the line.

    Raises:
        ProfileError: it is no YAML, or it is too long, too deep, too large with its aliases followed, has a tag, a key that
            comes twice, or a number that nothing can carry.
    """
    try:
        if len(text) > LARGEST_BYTES:
            raise yaml.MarkedYAMLError(problem=f"it is longer than {LARGEST_BYTES >> 20} MiB")
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise yaml.MarkedYAMLError(problem="it holds bytes that are no UTF-8")
        _Look().through(text)
        return yaml.load(text, Loader=_Loader)  # a SafeLoader, less the resolvers of YAML 1.1
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join((getattr(error, "problem", None) or str(error)).split())
        if "maximum nesting depth" in problem:  # some releases of libyaml stop by themselves, before the look does
            problem = _TOO_DEEP
        began = slip(error, text)
        if began is not None:
            line, problem = f", line {began[0] + 1}", began[1]
        raise ProfileError(f"{where}{line}: not valid YAML: {problem}.") from None


class _Look:
    """How deep and how large each part of a text is with its aliases followed."""

    def __init__(self) -> None:
        self._open: list[_Part] = []
        self._anchored: dict[str, _Part] = {}

    def through(self, text: str) -> None:
        """Raise a YAMLError at the first thing that is not allowed."""
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for event in yaml.parse(text, Loader=loader):
            tag = getattr(event, "tag", None)
            if tag not in (None, *_TAGS):
                raise _problem(f"the tag {_short(tag)} is not known here: write plain values", event)
            if isinstance(event, yaml.AliasEvent):
                self._add(self._of_alias(event), event)
            elif isinstance(event, yaml.ScalarEvent):
                self._add(self._anchor(event, _Part()), event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open.append(self._anchor(event, _Part(depth=1, is_open=True)))
                self._check(self._open[0], event)
            elif isinstance(event, yaml.CollectionEndEvent):
                part = self._open.pop()
                part.is_open = False
                self._add(part, event)

    def _anchor(self, event: Any, part: _Part) -> _Part:
        if event.anchor is not None:
            self._anchored[event.anchor] = part
        return part

    def _of_alias(self, event: Any) -> _Part:
        part = self._anchored.get(event.anchor, _Part())  # one that is not there is told when the value is built
        if part.is_open:
            raise _problem(f"*{_short(event.anchor)} is a part of itself", event)
        return part

    def _add(self, part: _Part, event: Any) -> None:
        if self._open:
            holder = self._open[-1]
            holder.values += part.values
            holder.depth = max(holder.depth, part.depth + 1)
            self._check(holder, event)

    def _check(self, part: _Part, event: Any) -> None:
        if len(self._open) + part.depth - 1 > DEEPEST:
            raise _problem(_TOO_DEEP, event)
        if sum(one.values for one in self._open) > MOST_VALUES:
            raise _problem(f"it holds more than {MOST_VALUES} values", event)


class _Part:
    """One list, mapping or scalar."""

    def __init__(self, depth: int = 0, is_open: bool = False) -> None:
        self.depth = depth
        self.values = 1
        self.is_open = is_open


_SUFFIXES = (".yaml", ".yml")
_NOUNS: dict[type, str] = {list: "a list", str: "text"}


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises ProfileError where it cannot be read, or as `parse_yaml` does."""
    try:
        text = _read(path).decode("utf-8-sig")
    except FileNotFoundError:
        from hpc_llm.text.near_files import missing_file

        raise ProfileError(f"{path}: {missing_file(path, _SUFFIXES)}") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: cannot be read: it is not UTF-8 text.") from None
    value = parse_yaml(text, str(path))
    if not isinstance(value, dict):
        holds = "is empty" if value is None else f"holds {_NOUNS.get(type(value), 'a single value')}"
        raise ProfileError(f"{path}: {holds}, a mapping of keys is needed.")
    return value


def _read(path: Path) -> bytes:
    """The bytes of a file, or of a pipe that the shell made, as in `<(…)`; any other pipe or device may never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(handle).st_mode
        if not (stat.S_ISREG(kind) or (stat.S_ISFIFO(kind) and path.is_relative_to("/dev"))):
            raise ProfileError(f"{path}: cannot be read: it is no regular file.")
        os.set_blocking(handle, True)
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(LARGEST_BYTES + 1)
    finally:
        os.close(handle)
    if len(content) > LARGEST_BYTES:
        raise ProfileError(f"{path}: cannot be read: it is larger than {LARGEST_BYTES >> 20} MiB.")
    return content
