"""Options and settings that say one amount in different words: the one that wins takes the others' place. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Any

from hpc_llm.errors import RequestError

_ONE_AMOUNT: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("steps",), ("epochs",)),
    (("steps",), ("queries",)),
    (("gradient_accumulation_steps",), ("kept_global_batch",)),
    (("sequence_length",), ("over=",)),
    (("lr_schedule", "lr_ramp_steps"), ("deepspeed.scheduler",)),
)
"""Ways of saying an amount, each of one option or more; of a mapping all that is in it.

`over=` is `over` where it names lengths, and not only that several are to be searched.
"""
_FOR_VALIDATION = "data=validation"
_FRACTION = "validation_fraction"


def rivals_of(names: Iterable[str]) -> frozenset[str]:
    """What says in other words what one of the names says.

    >>> sorted(rivals_of(["steps"])), sorted(rivals_of(["deepspeed.scheduler.type"])), sorted(rivals_of(["seed"]))
    (['epochs', 'queries'], ['lr_ramp_steps', 'lr_schedule'], [])
    """
    return frozenset(_rivals(tuple(names)))


def _rivals(names: tuple[str, ...]) -> Iterator[str]:
    for ways in _ONE_AMOUNT:
        for own, other in permutations(ways, 2):
            if any(_is_part(name, one) for name in names for one in own):
                yield from other
    if _FOR_VALIDATION in names:  # the other way round a source would have to be taken back
        yield _FRACTION


def is_one_of(name: str, rivals: Iterable[str]) -> bool:
    """Whether the option, or the path of a setting, is one of them or lies within one."""
    return any(_is_part(name, one) for one in rivals)


def _is_part(name: str, of: str) -> bool:
    return name == of or name.startswith(f"{of}.")


def said_in(layer: Mapping[str, Any]) -> set[str]:
    """The options that a layer says, and the paths of its settings in short names; what is taken back is not said."""
    names = {name for name, value in layer.items() if value is not None and name != "set"}
    if "=" in str(layer.get("over") or ""):
        names.add("over=")
    if any(str(one).startswith("validation=") for one in layer.get("data") or ()):
        names.add(_FOR_VALIDATION)
    return names | {path_of(pair) for pair in layer.get("set") or ()}


def path_of(pair: str) -> str:
    """The path of a setting in short names; as it was written where it cannot be read, which is told where it is applied."""
    from hpc_llm.planning.settings import read_setting

    try:
        return read_setting(pair).path
    except RequestError:
        return pair.partition("=")[0]


def without_rivals(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The layer below without what the one above, which wins, says in other words."""
    rivals = rivals_of(said_in(above))
    if not rivals:
        return dict(below)
    left = {name: value for name, value in below.items() if not is_one_of(_named(name, value), rivals)}
    if "set" in left:
        left["set"] = [pair for pair in left["set"] if not is_one_of(path_of(pair), rivals)]
    return left


def _named(name: str, value: Any) -> str:
    return "over=" if name == "over" and "=" in str(value) else name
