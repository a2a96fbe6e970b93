"""`hpc_llm.immutable.dataclass` is told from the standard library's by its speed alone."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from hpc_llm import immutable
from hpc_llm.planning.parts import BatchShape

MAKERS: list[Callable[..., Any]] = [dataclasses.dataclass, immutable.dataclass]


def made(maker: Callable[..., Any], **how: Any) -> Any:
    @maker(frozen=True, **how)
    class Thing:
        """What has all that our classes have."""

        first: int
        second: Any = 2
        third: list[int] = field(default_factory=list, repr=False)
        hidden: int = field(default=0, compare=False)

        @cached_property
        def twice(self) -> int:
            return 2 * self.first

    return Thing


@pytest.mark.parametrize("maker", MAKERS)
def test_it_is_frozen(maker: Callable[..., Any]) -> None:
    one = made(maker)(1)
    for name in ("first", "unknown", "twice"):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, 3)
        with pytest.raises(FrozenInstanceError):
            delattr(one, name)
    assert (one.first, one.second, one.third, one.hidden, one.twice, one.twice) == (1, 2, [], 0, 2, 2)


@pytest.mark.parametrize("maker", MAKERS)
def test_it_is_compared_hashed_and_shown_by_its_fields(maker: Callable[..., Any]) -> None:
    kind = made(maker)
    assert kind(1) == kind(1, 2, hidden=5) != kind(2)
    assert kind(1) != made(maker)(1) and kind(1) != (1, 2, [])
    assert hash(kind(1, third=(1,))) == hash(kind(1, third=(1,), hidden=3)) != hash(kind(2, third=(1,)))
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind(1))
    assert repr(kind(1)) == f"{kind.__qualname__}(first=1, second=2, hidden=0)"
    around: list[Any] = []
    around.append(kind(1, around))
    assert "..." in repr(around[0])


@pytest.mark.parametrize("maker", MAKERS)
def test_the_tools_of_the_standard_library_take_it(maker: Callable[..., Any]) -> None:
    kind = made(maker, kw_only=True)
    with pytest.raises(TypeError):
        kind(1)
    one = kind(first=1)
    assert one.third is not kind(first=1).third
    assert replace(one, second=4).second == 4 and asdict(one) == {"first": 1, "second": 2, "third": [], "hidden": 0}
    assert [each.name for each in fields(one)] == ["first", "second", "third", "hidden"]
    assert copy.deepcopy(one) == copy.copy(one) == one


@pytest.mark.parametrize("base", MAKERS)
@pytest.mark.parametrize("own", MAKERS)
def test_classes_of_both_kinds_derive_from_each_other(base: Callable[..., Any], own: Callable[..., Any]) -> None:
    @own(frozen=True, kw_only=True)
    class More(made(base, kw_only=True)):  # type: ignore[misc]
        further: int = 7

    one = More(first=1)
    assert one == More(first=1) != More(first=1, further=8) and one.further == 7
    with pytest.raises(FrozenInstanceError):
        one.first = 2
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Loose", (made(base),), {"__annotations__": {"loose": int}, "loose": 1}))


@pytest.mark.parametrize("maker", MAKERS)
def test_what_a_class_says_itself_stays(maker: Callable[..., Any]) -> None:
    class Own:
        value: float

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", float(self.value))

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    kind: Any = maker(frozen=True)(Own)
    assert (repr(kind(1)), kind(1) == 3, hash(kind(1)), type(kind(1).value)) == ("mine", True, 5, float)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_class_that_says_when_it_is_equal_can_be_hashed(maker: Callable[..., Any]) -> None:
    class Equal:  # noqa: PLW1641
        value: int

        def __eq__(self, other: object) -> bool:
            return True

    kind: Any = maker(frozen=True)(Equal)
    assert hash(kind(1)) == hash(kind(1))


def test_one_of_a_plan_is_pickled() -> None:
    shape = BatchShape(micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1, sequence_length=8)
    assert pickle.loads(pickle.dumps(shape)) == shape
