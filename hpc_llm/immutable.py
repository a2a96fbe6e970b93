"""`dataclass(frozen=True)` as in the standard library, made in less than half of the time. Standard library only; it travels.

The standard library writes and compiles six functions for each such class; for the sixty classes of a plan that took a tenth of
`render`. Here it writes `__init__` alone, and the others are the same functions for all classes. An object is made a little
more slowly, so this is for the modules that every plan loads and not for objects of which there are millions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

_T = TypeVar("_T")


def _made(*, frozen: bool, kw_only: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Decorate a class. One that derives from another dataclass is left to the standard library, which knows how they combine."""

    def made(cls: type[_T]) -> type[_T]:
        if not frozen or any(map(dataclasses.is_dataclass, cls.__mro__)):
            return dataclasses.dataclass(cls, frozen=frozen, kw_only=kw_only)
        dataclasses.dataclass(cls, repr=False, eq=False, kw_only=kw_only)
        _share(cls)
        return cls

    return made


def _share(cls: Any) -> None:
    """Give the class what a frozen dataclass has besides `__init__`, where it has none of its own."""
    cls.__dataclass_params__.frozen = True  # classes that derive from it are held to that
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
