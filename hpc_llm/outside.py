"""What other installed packages bring: one entry point a thing, one group a kind of thing. Standard library only; it travels.

Their code may do anything as it is loaded, so each way in which it can be broken becomes one sentence here.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from hpc_llm.errors import RequestError, notice
from hpc_llm.immutable import dataclass

_LONGEST = 300
"""Characters of what an exception says that are quoted."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A kind of thing that other packages may bring."""

    name: str
    """Of the group of entry points, e.g. `hpc_llm.tasks`."""
    what: str
    """What one of them is called, e.g. `task`."""
    kind: type | tuple[type, ...]
    """What an entry point must lead to. It has the entry point's name, as its `name`, where it has one."""
    error: type[RequestError] = RequestError

    def names(self) -> tuple[str, ...]:
        """Of all that is installed, whether it can be loaded or not."""
        return tuple(dict.fromkeys(point.name for point in self._points()))

    def load(self, name: str) -> Any:
        """What the entry point of that name leads to.

        Raises:
            KeyError: nobody brings one of that name.
            RequestError, or what `error` says: several packages do, or it cannot be used.
        """
        points = {point.value: point for point in self._points() if point.name == name}
        if not points:
            raise KeyError(name)
        if len(points) > 1:
            raise self.error(
                f"several packages bring a {self.what} {name}: {', '.join(points)}. Uninstall all but one."
            )
        (point,) = points.values()
        cannot = f"the {self.what} {name} of {point.value} cannot be used"
        try:
            found = point.load()
        except (
            Exception,
            SystemExit,
            GeneratorExit,
        ) as error:  # a module that is not ours may raise anything, or end the program
            raise self.error(f"{cannot}: {reason_of(error)}.") from error
        if not isinstance(found, self.kind):
            raise self.error(f"{cannot}: it is no {self._kinds()}.")
        if getattr(found, "name", name) != name:
            raise self.error(f"{cannot}: its name is {getattr(found, 'name', None)!r}.")
        if (wrong := wrong_field(found)) is not None:
            raise self.error(f"{cannot}: its {wrong}.")
        return found

    def _points(self) -> tuple[importlib.metadata.EntryPoint, ...]:
        """Somebody's damaged package, which need not have to do with us, must not keep a command from its work."""
        try:
            if f"[{self.name}]" not in _said(_folders()):
                return ()
            return tuple(_installed(_folders()).select(group=self.name))
        except Exception as error:
            notice(
                f"no {self.what} of another package is known, for the entry points cannot be read: {reason_of(error)}"
            )
            return ()

    def _kinds(self) -> str:
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        return " or ".join(kind.__name__ for kind in kinds)


def _folders() -> tuple[tuple[str, int | None], ...]:
    """Where packages are looked for, each folder with the time at which something was last installed there or removed."""
    found: list[tuple[str, int | None]] = []
    for place in sys.path:
        try:
            found.append((place, os.stat(place or os.curdir).st_mtime_ns))
        except OSError:
            found.append((place, None))
    return tuple(found)


@functools.lru_cache(maxsize=1)
def _said(folders: tuple[tuple[str, int | None], ...]) -> str:
    """What the packages in `folders` say of their entry points. Few have any of ours, and to read all takes as long as a plan."""
    return "".join(package.read_text("entry_points.txt") or "" for package in importlib.metadata.distributions())


@functools.lru_cache(maxsize=1)
def _installed(folders: tuple[tuple[str, int | None], ...]) -> Any:
    """All entry points in `folders`, read once for all kinds; Python 3.12 has another type for them than those before."""
    return importlib.metadata.entry_points()


@contextlib.contextmanager
def away_from_here() -> Iterator[None]:
    """The block runs in the root folder: some libraries look for their settings in the working directory, which may be a stranger's."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(here)
        os.close(here)


@contextlib.contextmanager
def without_pydantics_plugins() -> Iterator[None]:
    """Models that are built in the block are so without code of other packages, for which pydantic would read all that is installed."""
    before = os.environ.get("PYDANTIC_DISABLE_PLUGINS")
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    try:
        yield
    finally:
        os.environ.pop("PYDANTIC_DISABLE_PLUGINS")
        os.environ.update({} if before is None else {"PYDANTIC_DISABLE_PLUGINS": before})


def reason_of(error: BaseException) -> str:
    """What an exception of foreign code says, in one line without the full stop."""
    said = " ".join(str(error).split())[:_LONGEST].rstrip(".")
    return said if said and isinstance(error, Exception) else f"it raises {type(error).__name__}{said and f'({said})'}"


def wrong_field(member: object) -> str | None:
    """Which field of a dataclass, or of those within it, holds what its annotation does not name, in a clause; None where none does.

    Whoever uses the field would fail, for all that is asked for. An annotation that cannot be read here is passed over.
    """
    if not dataclasses.is_dataclass(member):
        return None
    try:
        hints = typing.get_type_hints(type(member))
    except Exception:  # it may name what is imported for type checkers alone
        return None
    for field in dataclasses.fields(member):
        value = getattr(member, field.name, None)
        if not _fits(value, hints.get(field.name, typing.Any)):
            return f"{field.name} is {_shown(value)}, where {hints[field.name]} is needed".replace("typing.", "")
        for inner in value if isinstance(value, (tuple, list)) else (value,):
            if (wrong := wrong_field(inner)) is not None:
                return f"{field.name}: {wrong}"
    return None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:  # a list does as well
        if not isinstance(value, (tuple, list)):
            return False
        each = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(each) == len(value) and all(map(_fits, value, each))
    if origin is collections.abc.Callable:
        return callable(value)
    if hint in (int, float):
        return not isinstance(value, bool) and isinstance(value, (int, float) if hint is float else int)
    known = hint if origin is None else origin
    try:
        return isinstance(value, known)
    except TypeError:  # no class, or one that is for type checkers alone
        return True
