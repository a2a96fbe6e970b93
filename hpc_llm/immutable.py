"""`dataclass(frozen=True)` as in the standard library, made in less than half of the time. Standard library only; it travels.

The standard library writes and compiles six functions for each such class; for the sixty classes of a plan that took a tenth of
`render`. Here they are the same functions for all classes. An object is made more slowly, in about two microseconds, so this is
for the modules that every plan loads and not for objects of which there are millions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

_T = TypeVar("_T")


def _made(*, frozen: bool, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Decorate a class. One that derives from a dataclass of the standard library is left to that, which knows how they combine."""

    def made(cls: type[_T]) -> type[_T]:
        bases = [one for one in cls.__mro__ if dataclasses.is_dataclass(one)]
        if not frozen or any(one.__setattr__ is not _set_once for one in bases):
            return dataclasses.dataclass(cls, frozen=frozen, kw_only=kw_only)
        dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only, frozen=bool(bases))
        _share(cls)
        return cls

    return made


def _init_of(fields: Sequence[dataclasses.Field[Any]], ends: bool) -> Callable[..., None]:
    """An `__init__` that takes these fields, and calls `__post_init__` where it `ends` so."""
    positional = tuple(one.name for one in fields if one.init and not one.kw_only)
    taken = tuple((one.name, one.default, one.default_factory) for one in fields if one.init)
    own = tuple((one.name, one.default_factory) for one in fields if not one.init)

    def init(self: Any, *given: Any, **values: Any) -> None:
        if given:
            _place(self, positional, given, values)
        set_ = self.__dict__
        for name, default, factory in taken:
            if name in values:
                set_[name] = values.pop(name)
            elif factory is not dataclasses.MISSING:
                set_[name] = factory()
            elif default is not dataclasses.MISSING:
                set_[name] = default
            else:
                raise TypeError(f"{type(self).__qualname__}.__init__() misses the argument {name!r}")
        if values:
            raise TypeError(f"{type(self).__qualname__}.__init__() got an unexpected argument {next(iter(values))!r}")
        for name, factory in own:
            if factory is not dataclasses.MISSING:
                set_[name] = factory()
        if ends:
            self.__post_init__()

    return init


def _place(self: Any, names: tuple[str, ...], given: tuple[Any, ...], values: dict[str, Any]) -> None:
    """Put arguments without a name to those with one."""
    if len(given) > len(names):
        raise TypeError(f"{type(self).__qualname__}.__init__() takes {len(names)} arguments without a name at most")
    for name, value in zip(names, given, strict=False):
        if name in values:
            raise TypeError(f"{type(self).__qualname__}.__init__() got the argument {name!r} twice")
        values[name] = value


def _share(cls: Any) -> None:
    """Give the class what a frozen dataclass has besides `__init__`, where it has none of its own."""
    cls.__dataclass_params__.frozen = True  # classes that derive from it are held to that
    if "__init__" not in vars(cls):
        cls.__init__ = _init_of(dataclasses.fields(cls), hasattr(cls, "__post_init__"))
    values = _values_of([one.name for one in dataclasses.fields(cls) if one.compare])

    def is_equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    shared = {"__repr__": _shown, "__eq__": is_equal}
    own = vars(cls)
    if own.get("__hash__") is None:  # Python puts None there where a class says `__eq__` alone
        cls.__hash__ = hashed
    for name, function in shared.items():
        if name not in own:
            setattr(cls, name, function)
    cls.__setattr__, cls.__delattr__ = _set_once, _refuse_to_delete


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda one: ()


def _set_once(self: Any, name: str, value: Any) -> None:
    """What `__init__` sets; afterwards each field is there."""
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@recursive_repr()
def _shown(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


if not TYPE_CHECKING:
    dataclass = _made
