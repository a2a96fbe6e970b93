"""Options laid on each other, and the run that they ask for: all that a request needs which is no study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from hpc_llm.api.amounts import is_one_of, rivals_of, said_in, without_rivals
from hpc_llm.api.values import LISTS, names_in, not_replaced
from hpc_llm.corpus.words import SPLITS, TRAIN
from hpc_llm.immutable import dataclass

if TYPE_CHECKING:
    from hpc_llm.planning.study import Combination, StudyRun

SWEPT = ("cluster", "method")
"""Options of which an experiment may name several."""

Layer = dict[str, Any]
"""Options in the types of their flags; `set` is a list of `PATH=VALUE`."""


def laid(below: Layer, above: Layer) -> Layer:
    """Both layers, the one above winning; of `set` and `sbatch` only what it names itself, as flags do.

    What the one above says in other words is left out too: epochs below give way to steps above.
    """
    below = without_rivals(below, above)
    lists: Layer = {
        name: [*not_replaced(below.get(name, []), above[name]), *above[name]]
        for name in ("set", "sbatch")
        if name in above
    }
    return {**below, **above, **lists}


def _not_for_the_same(below: Sequence[str], above: Sequence[str]) -> list[str]:
    """The sources of data below that those above leave: what is said to be for training gives way to what is for training.

    A source that says nothing may hold both splits, so it replaces all, and stays beside what is for validation alone.
    """
    said = {_split_of(one) for one in above}
    if None in said:
        return []
    taken = said | ({None} if TRAIN in said else set())
    return [one for one in below if _split_of(one) not in taken]


def _split_of(source: str) -> str | None:
    split, _, place = source.partition("=")
    return split if place and split in SPLITS else None


def axis_values(layer: Layer) -> Combination:
    """A layer by option, and by `set.PATH` for each setting: what can be compared with the axes of a matrix."""
    from hpc_llm.planning.settings import read_setting

    settings = ((read_setting(pair), pair) for pair in layer.get("set", ()))
    others = {name: tuple(v) if isinstance(v, list) else v for name, v in layer.items() if name != "set"}
    return others | {f"set.{setting.path}": setting.text for setting, _ in settings}


def layer_of(axis: str, value: Any) -> Layer:
    """The opposite: the layer that sets an axis."""
    if axis.startswith("set."):
        return {"set": [f"{axis.removeprefix('set.')}={value}"]}
    return {axis: list(value) if axis in LISTS else value}


def without_taken_back(layer: Layer) -> Layer:
    """The layer without the options that were taken back."""
    return {name: value for name, value in layer.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run that is asked for: one cluster, one method."""

    values: Layer
    sources: Mapping[str, str] = field(default_factory=dict)
    """Option -> where its value comes from."""
    place: StudyRun | None = None
    """In its study, where there is one."""

    @property
    def cluster(self) -> str:
        return str(self.values["cluster"])

    @property
    def method(self) -> str:
        return str(self.values["method"])


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What is said beside the file, which wins over it."""

    layer: Layer = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    smoke: bool = False
    """Whether the runs are to be small."""

    def over(self, below: Layer) -> Layer:
        """The options with these over them; of data, what is for the same."""
        made = laid(below, self.layer)
        if "data" not in self.layer:
            return made
        own = self.layer["data"]
        return {**made, "data": [*_not_for_the_same(below.get("data", []), own), *own]}

    def axis(self, name: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values of an axis: those that flags give in place of the file's."""
        if name in SWEPT and name in self.layer:
            return names_in(self.layer[name])
        return [self._own[name]] if name in self._own else values

    def changes(self, axis: str) -> bool:
        """Whether flags decide that axis, or what it says in other words."""
        return axis in self._own or self.replaces(axis)

    def replaces(self, axis: str) -> bool:
        """Whether flags say in other words what that axis says."""
        return is_one_of(axis.removeprefix("set."), rivals_of(said_in(self.layer)))

    @property
    def _own(self) -> Combination:
        return axis_values({name: value for name, value in self.layer.items() if name not in ("data", "sbatch")})
