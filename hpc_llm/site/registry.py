"""Members of a kind that can be had from three places: hpc-llm's own, installed packages, and programs that register one.

Profiles name them, so this lies below the plan; the modules are found by name, and nothing here depends on one.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from hpc_llm.errors import ProfileError, unknown_name
from hpc_llm.outside import Group

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=Named)


def check_name(kind: str, name: str) -> None:
    """Raise ProfileError for what a script or a record could not hold as the name of a `kind`."""
    if not _NAME.fullmatch(name):
        raise ProfileError(f"{name!r} is no name of a {kind}: use letters, digits, dot, underscore and hyphen.")


class Registry(Generic[_T]):
    """All members of one kind, by name."""

    def __init__(
        self, kind: str, package: str, attribute: str, type_: Callable[[], type[_T]], *, folders: bool
    ) -> None:
        """The own members are the modules of `package`, or with `folders` the packages in it, that define `attribute`.

        `kind` is one word, of which the plural is the entry points' group. `type_` tells what a member must be: the class
        may lie where nothing here depends on it.
        """
        self._kind, self._package, self._attribute, self._type = kind, package, attribute, type_
        self._folders = folders
        self._group = f"hpc_llm.{kind}s"
        self._registered: dict[str, _T] = {}
        self._loaded: dict[str, _T] = {}
        self._broken: dict[str, ProfileError] = {}

    def register(self, member: _T) -> None:
        """Make a member known to this process, in place of one of the same name."""
        check_name(self._kind, member.name)
        self._registered[member.name] = member

    def unregister(self, name: str) -> None:
        """Take back what `register` did."""
        self._registered.pop(name, None)

    def names(self) -> list[str]:
        """The names of all, of those too that cannot be loaded."""
        return sorted({*self._own, *self._outside_names, *self._registered})

    def known(self) -> Mapping[str, _T]:
        """All by name, but for those of installed packages that cannot be loaded."""
        installed = {}
        for name in self._outside_names:
            with contextlib.suppress(ProfileError):
                installed[name] = self._load(name)
        return {**self._own, **installed, **self._registered}

    def find(self, name: str) -> _T:
        """The member of that name; installed packages are asked only where nothing nearer has it.

        Raises:
            ProfileError: there is none, or it cannot be loaded.
        """
        if name in self._registered:
            return self._registered[name]
        if name in self._own:
            return self._own[name]
        if name in self._outside_names:
            return self._load(name)
        raise ProfileError(unknown_name(self._kind, name, self.known()))

    @cached_property
    def _own(self) -> Mapping[str, _T]:
        package = importlib.import_module(self._package)
        names = [one.name for one in pkgutil.iter_modules(package.__path__) if one.ispkg or not self._folders]
        found: list[_T] = [getattr(importlib.import_module(f"{self._package}.{n}"), self._attribute) for n in names]
        return {member.name: member for member in found}

    @cached_property
    def _outside(self) -> Group:
        return Group(name=self._group, what=self._kind, kind=self._type(), error=ProfileError)

    @cached_property
    def _outside_names(self) -> tuple[str, ...]:
        return self._outside.names()

    def _load(self, name: str) -> _T:
        """One of an installed package. Raises ProfileError where that is broken, whatever its code does."""
        if name in self._broken:  # its code is not run again for each of ten thousand records
            raise self._broken[name]
        if name not in self._loaded:
            try:
                self._loaded[name] = self._outside.load(name)
            except ProfileError as error:
                self._broken[name] = error
                raise
        return self._loaded[name]
