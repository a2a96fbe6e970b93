"""The part of an experiment that makes several runs of it: matrix, exclude, include, runs; what each is expected to do.

Pure: it is read into layers of options, one on another; `hpc_llm.api.study_runs` lays them on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from hpc_llm.api.amounts import is_one_of, rivals_of
from hpc_llm.api.layers import SWEPT, Layer, axis_values, laid
from hpc_llm.api.values import LISTS, NAMES, answered, names_in, typed
from hpc_llm.errors import RequestError, did_you_mean, notice, unknown_name
from hpc_llm.immutable import dataclass
from hpc_llm.planning.reference import Reference, read_references
from hpc_llm.planning.study import EXPECTABLE, LONGEST_NAME, Combination

KEYS = ("matrix", "exclude", "include", "runs", "expect", "reference", "smoke")
"""What makes a study of an experiment."""
_OF_A_RUN = ("expect", "reference", "smoke")
_MOST_ENTRIES = 1000
"""Of exclude, and of include."""

Check = Callable[[Layer, str], None]
"""Refuses what a layer may not hold; gets the layer and where it stands."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What is said of a run beside its options."""

    name: str | None = None
    expect: str | None = None
    reference: Mapping[str, Reference] | None = None
    smoke: Layer | None = None
    """What a small run has otherwise; None where nothing is said. An option that is None there is taken back."""
    smoke_expect: str | None = None

    def over(self, below: About) -> About:
        """Both, this one winning; values of smoke are added to each other."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        if self.smoke is not None and below.smoke is not None:
            said["smoke"] = laid(below.smoke, self.smoke)
        return replace(below, **said)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One item of `include` or `runs`."""

    layer: Layer
    about: About
    where: str
    matches: Combination = field(default_factory=dict)
    """Of include: the values of axes by which it adds to combinations of the matrix; empty where it is a run of its own."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a file says of its runs, the options at its top apart."""

    where: str
    about: About
    """For runs that do not say otherwise."""
    axes: Mapping[str, Sequence[Any]]
    """Option or `set.PATH` -> values."""
    excluded: Sequence[Combination]
    included: Sequence[Entry]
    runs: Sequence[Entry]

    @property
    def is_plain(self) -> bool:
        """Whether the top of the file is the run."""
        return not self.axes and not self.included and not self.runs


def read_study(content: Mapping[str, Any], base: Layer, where: str, check: Check) -> Study | None:
    """The study in an experiment of which `base` are the options at the top; None where it is none.

    Raises:
        RequestError: it is not written so, with the place within the file and the name of the run.
    """
    if not any(key in content for key in KEYS):
        return None
    reader = _Reader(where, check)
    axes = reader.axes(content["matrix"]) if "matrix" in content else {}
    if unheeded := next((name for name in _lists(base) if name in axes), None):
        raise RequestError(
            f"{where}: {unheeded} is a list at the top and in matrix, whose values count alone. Keep one of them."
        )
    if any(key in content for key in ("matrix", "exclude", "include")):
        axes = _lists(base) | axes
    excluded = [reader.combination(item, axes, place) for item, place in reader.items(content, "exclude")]
    included = [reader.included(item, axes, place) for item, place in reader.items(content, "include")]
    runs = [reader.entry(item, place) for item, place in reader.items(content, "runs")]
    about = reader.about({key: content[key] for key in _OF_A_RUN if key in content}, where)
    _say_unheeded(base, axes, [*included, *runs], where)
    return Study(where=where, about=about, axes=axes, excluded=excluded, included=included, runs=runs)


def _lists(base: Layer) -> dict[str, list[Any]]:
    """Lists of clusters or methods at the top, which are axes too."""
    named = {name: names_in(base[name]) for name in SWEPT if name in base}
    return {name: names for name, names in named.items() if len(names) > 1}


def _say_unheeded(base: Layer, axes: Mapping[str, Sequence[Any]], entries: Sequence[Entry], where: str) -> None:
    """Tell of options at the top that no run has: the matrix says them, or the same in other words, and so does each entry."""
    asked = axis_values({name: value for name, value in base.items() if name == "set" or name not in LISTS})
    asked |= {name: names_in(base[name])[0] for name in SWEPT if name in base and len(names_in(base[name])) == 1}
    own = [axis_values(entry.layer) for entry in entries]
    for name, value in asked.items():
        ways = {name} | {
            axis for axis in axes if is_one_of(axis.removeprefix("set."), rivals_of([name.removeprefix("set.")]))
        }
        said = next((axis for axis in axes if axis in ways and value not in (axes[axis] if axis == name else ())), None)
        if said is not None and all(ways & set(one) for one in own):
            notice(f"{where}: {name} {shown(value)} at the top is that of no run, for matrix says {said}")


def of_file(layer: Layer, where: str) -> Layer:
    """The layer, whose settings name that place of a file in messages from now on."""
    from hpc_llm.planning.settings import placed

    if "set" in layer:
        layer["set"] = placed(layer["set"], where, f"{where.partition(': ')[0].rpartition('/')[2]}: set")
    return layer


class _Reader:
    """Reads the parts of one study."""

    def __init__(self, where: str, check: Check) -> None:
        self.where = where
        self.check = check

    def items(self, content: Mapping[str, Any], key: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        """The mappings of a list, each with its place."""
        given = content.get(key, [])
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, Mapping) and one for one in given):
            raise RequestError(f"{self.where}: {key} is a list of mappings, each with one option or more.")
        if key in content and not given:
            raise RequestError(f"{self.where}: {key} is empty. Leave it out.")
        if key != "runs" and len(given) > _MOST_ENTRIES:
            raise RequestError(f"{self.where}: {key} has more than {_MOST_ENTRIES} entries.")
        for number, item in enumerate(given, 1):
            name = item.get("name")
            yield (
                item,
                f"{self.where}: {key} {number}"
                + (f" ({name})" if isinstance(name, str) and name.isprintable() else ""),
            )

    def layer(self, content: Mapping[str, Any], where: str, beside: Sequence[str] = (), is_axis: bool = False) -> Layer:
        """Options as they may stand in a file, `set.PATH` among them; `beside` are the other keys that are valid there."""
        found: Layer = {}
        for key, value in content.items():
            name = str(key) if str(key).startswith("set.") else str(key).replace("-", "_")
            if name.startswith("set."):
                option, given = "set", typed(where, "set", {name.removeprefix("set."): value})
            elif name in NAMES:
                option, given = name, typed(where, name, value)
            else:
                said = answered(str(key), "axis" if is_axis else "file", str(value))
                valid = (*NAMES, "set.PATH", *beside)
                raise RequestError(f"{where}: {said or unknown_name('option', str(key), valid)}")
            if option in found and option not in LISTS:
                raise RequestError(f"{where}: {option} comes twice. Keep one of them.")
            found[option] = [*found.get(option, []), *given] if option in LISTS else given
        self.check(found, where)
        self._read_settings(found, where)
        return found

    def _read_settings(self, layer: Layer, where: str) -> None:
        from hpc_llm.planning.settings import read_setting

        of_file(layer, where.rpartition(": set.")[0] or where)  # of an axis its path is in both
        for pair in layer.get("set", ()):
            read_setting(pair)

    def single(
        self, content: Mapping[str, Any], where: str, beside: Sequence[str] = (), is_axis: bool = False
    ) -> Layer:
        """The same, of one run: it names one cluster and one method."""
        found = self.layer(content, where, beside, is_axis)
        for name in SWEPT:
            value = found.get(name)
            if isinstance(value, list) or (isinstance(value, str) and "," in value):
                raise RequestError(f"{where}: {name} names several. A run has one: put the list into matrix.")
        return found

    def axes(self, content: Any) -> dict[str, list[Any]]:
        """The axes of the matrix."""
        where = f"{self.where}: matrix"
        if not isinstance(content, Mapping) or not content:
            raise RequestError(f"{where} is a mapping of options to lists of values, e.g. method: [z2, z3].")
        found: dict[str, list[Any]] = {}
        for key, values in content.items():
            self._check_list(str(key), values, where)
            read = [axis_values(self.single({key: value}, f"{where}: {key}", is_axis=True)) for value in values]
            axis = next(iter(read[0]), str(key))
            if any(list(one) != [axis] for one in read):
                raise RequestError(
                    f"{where}: {key}: each value sets one and the same field. Use set.PATH for each field."
                )
            if axis in found:
                raise RequestError(f"{where}: {axis} comes twice. Keep one of them.")
            other = next(
                (one for one in found if is_one_of(one.removeprefix("set."), rivals_of([axis.removeprefix("set.")]))),
                None,
            )
            if other is not None:
                raise RequestError(f"{where}: {other} and {axis} say one thing in two ways. Keep one of them.")
            found[axis] = [one[axis] for one in read]
            twice = next((v for v in found[axis] if found[axis].count(v) > 1), None)
            if twice is not None:
                raise RequestError(f"{where}: {axis} holds {shown(twice)} twice. Repeats differ by their seed.")
        return found

    def _check_list(self, key: str, values: Any, where: str) -> None:
        """Raise RequestError unless an axis has values; a name that is none is told first, with the whole axis."""
        if isinstance(values, (list, tuple)) and values:
            return
        if isinstance(values, Mapping) and key == "set":
            paths = [pair.partition("=") for pair in typed(where, "set", values)]
            axes = ", ".join(f"set.{path}: [{value}]" for path, _, value in paths)
            raise RequestError(f"{where}: each setting is an axis of its own{f', as in {axes}' if axes else ''}.")
        if not isinstance(values, (list, tuple, Mapping)) and values is not None:
            self.single({key: values}, f"{where}: {key}", is_axis=True)
            raise RequestError(f"{where}: {key} needs a list of values, as in {key}: [{values}].")
        raise RequestError(f"{where}: {key} needs a list of values.")

    def combination(self, content: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], where: str) -> Combination:
        """An entry of exclude: it names axes and their values only."""
        found = axis_values(self.single(content, where))
        for name, value in found.items():
            if name not in axes:
                raise RequestError(f"{where}: " + unknown_name("axis of matrix", name, axes))
            if value not in axes[name]:
                valid, near = ", ".join(map(shown, axes[name])), did_you_mean(str(value), map(str, axes[name])) or "."
                raise RequestError(f"{where}: {name} {shown(value)} is not in matrix{near} Valid: {valid}.")
        return found

    def included(self, content: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], where: str) -> Entry:
        """An entry of include: it adds to the combinations that have its values of the axes, else it is one more."""
        made = self.entry(content, where)
        named = {name: value for name, value in axis_values(made.layer).items() if name in axes}
        is_there = bool(named) and all(value in axes[name] for name, value in named.items())
        return replace(made, matches=named) if is_there else made

    def entry(self, content: Mapping[str, Any], where: str) -> Entry:
        """A run of include or runs."""
        options = {key: value for key, value in content.items() if key not in (*_OF_A_RUN, "name")}
        about = self.about({key: content[key] for key in (*_OF_A_RUN, "name") if key in content}, where)
        return Entry(layer=self.single(options, where, _OF_A_RUN), about=about, where=where)

    def about(self, content: Mapping[str, Any], where: str) -> About:
        """What is said of a run beside its options."""
        smoke = content.get("smoke")
        if "smoke" in content and not isinstance(smoke, Mapping):
            raise RequestError(f"{where}: smoke is a mapping of options that make the run small, e.g. {{steps: 10}}.")
        small = dict(smoke or {})
        expected_small = small.pop("expect", None)
        return About(
            name=self._name(content["name"], where) if "name" in content else None,
            expect=self._outcome(content["expect"], where) if "expect" in content else None,
            reference=self._references(content["reference"], where) if "reference" in content else None,
            smoke=None if smoke is None else self._small(small, f"{where}: smoke"),
            smoke_expect=None if expected_small is None else self._outcome(expected_small, f"{where}: smoke"),
        )

    def _small(self, content: Mapping[str, Any], where: str) -> Layer:
        """Options of a small run; null takes back what the run says, so that the site's own default holds."""
        taken = {str(key).replace("-", "_"): None for key, value in content.items() if value is None}
        valid = tuple(name for name in NAMES if name not in ("set", "sbatch"))  # of which a layer says parts
        for name in taken:
            if name not in valid:
                raise RequestError(f"{where}: " + unknown_name("option that null takes back", name, valid))
        return self.single({key: value for key, value in content.items() if value is not None}, where) | taken

    def _references(self, value: Any, where: str) -> dict[str, Reference]:
        from hpc_llm.parsing.rows import FIGURES

        return read_references(value, FIGURES, f"{where}: reference")

    def _outcome(self, value: Any, where: str) -> str:
        if value not in EXPECTABLE:
            raise RequestError(f"{where}: " + unknown_name("outcome", str(value), EXPECTABLE, where="expect"))
        return str(value)

    def _name(self, value: Any, where: str) -> str:
        text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if not text.isprintable() or not text.strip() or text != text.strip() or len(text) > LONGEST_NAME:
            raise RequestError(f"{where}: name is {value!r}: one line of at most {LONGEST_NAME} letters is needed.")
        return text


def shown(value: Any) -> str:
    """A value of an axis as text."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
