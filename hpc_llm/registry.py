"""Members of a kind that can be had from three places: hpc-llm's own, installed packages, and programs that register one.

Standard library only; it travels.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from hpc_llm.errors import RequestError, notice, unknown_name
from hpc_llm.outside import Group

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_T = TypeVar("_T")


def is_plain_name(text: object) -> bool:
    """Whether a script or a record can hold that as the name of a member."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def check_name(kind: str, name: str, error: type[Exception] = RequestError) -> None:
    """Raise `error` for what a script or a record could not hold as the name of a `kind`."""
    if not is_plain_name(name):
        raise error(f"{name!r} is no name of {_a(kind)}: use letters, digits, dot, underscore and hyphen.")


class Modules(Mapping[str, _T]):
    """What each module of a package defines as `attribute`, by the module's name; imported when it is asked for."""

    def __init__(self, package: str, attribute: str, names: Sequence[str] = (), *, folders: bool = False) -> None:
        """Without `names`, in the order in which they are listed, all modules, or with `folders` all packages in it."""
        self._package, self._attribute, self._folders = package, attribute, folders
        self._given = names

    @cached_property
    def _names(self) -> Sequence[str]:
        if self._given:
            return self._given
        found = pkgutil.iter_modules(importlib.import_module(self._package).__path__)
        return [one.name for one in found if one.ispkg or not self._folders]

    def __getitem__(self, name: str) -> _T:
        if name not in self._names:
            raise KeyError(name)
        member: _T = getattr(importlib.import_module(f"{self._package}.{name}"), self._attribute)
        return member

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Registry(Generic[_T]):
    """All members of one kind, by name: our own before registered ones, and those before installed ones."""

    def __init__(
        self,
        kind: str,
        own: Mapping[str, _T],
        type_: Callable[[], type | tuple[type, ...]],
        *,
        name: str = "name",
        error: type[RequestError] = RequestError,
    ) -> None:
        """`kind` is in words the singular of the entry points' group. `type_` tells what a member must be: the class may
        lie where nothing here depends on it. `name` is the attribute of a member that holds its name."""
        self.own = own
        self._kind, self._type, self._name, self._error = kind, type_, name, error
        self._registered: dict[str, _T] = {}
        self._loaded: dict[str, _T | RequestError] = {}

    def register(self, member: _T) -> None:
        """Make a member known to this process. Raises ValueError where there is one of that name."""
        name = getattr(member, self._name)
        check_name(self._kind, name, self._error)
        if name in self.names():
            raise ValueError(f"there is {_a(self._kind)} {name} already")
        self._registered[name] = member

    def unregister(self, name: str) -> None:
        """Take back what `register` did."""
        self._registered.pop(name, None)

    def names(self) -> tuple[str, ...]:
        """The names of all, ours first; of those too that cannot be loaded."""
        return tuple(dict.fromkeys((*self.own, *self._registered, *self._outside.names())))

    def find(self, name: str) -> _T:
        """The member of that name; installed packages are asked only where nothing nearer has it.

        Raises:
            RequestError, or what `error` says: there is none, or it cannot be loaded.
        """
        for nearer in (self.own, self._registered):
            if name in nearer:
                return nearer[name]
        try:
            return self._load(name)
        except KeyError:
            raise self._error(unknown_name(self._kind, name, self.known())) from None

    def known(self) -> dict[str, _T]:
        """All by name, but for those of installed packages that cannot be loaded."""
        found = {**self.own, **self._registered}
        for name in self._outside.names():
            with contextlib.suppress(RequestError):
                found.setdefault(name, self._load(name))
        return found

    def registered(self) -> tuple[_T, ...]:
        """What programs have registered."""
        return tuple(self._registered.values())

    def installed(self, taken: Container[str] = ()) -> Iterator[tuple[str, _T]]:
        """What installed packages bring, by the entry points' names. A notice tells of each that is left out, as its name is
        `taken` or as it cannot be loaded."""
        for name in self._outside.names():
            if name in taken:
                notice(f"the {self._kind} {name} of another package is left out: there is one of that name already.")
                continue
            try:
                yield name, self._load(name)
            except RequestError as error:
                notice(f"{error} It is left out.")

    @cached_property
    def _outside(self) -> Group:
        group = f"hpc_llm.{self._kind.replace(' ', '_')}s"
        return Group(name=group, what=self._kind, kind=self._type(), error=self._error)

    def _load(self, name: str) -> _T:
        """One of an installed package, whose code is run once, not for each of ten thousand records."""
        if name not in self._loaded:
            try:
                self._loaded[name] = self._outside.load(name)
            except RequestError as error:
                self._loaded[name] = error
        found = self._loaded[name]
        if isinstance(found, RequestError):
            raise found
        return found


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
