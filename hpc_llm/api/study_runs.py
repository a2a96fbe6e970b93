"""From a study to its runs: options laid on each other, each run with its name and with what sets it apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from hpc_llm.api.amounts import is_one_of, rivals_of
from hpc_llm.api.layers import SWEPT, Flags, Layer, RunRequest, axis_values, laid, layer_of, without_taken_back
from hpc_llm.api.study import About, Entry, Study, of_file, shown
from hpc_llm.api.values import names_in, swept
from hpc_llm.errors import RequestError
from hpc_llm.immutable import dataclass
from hpc_llm.planning.study import LONGEST_NAME, MOST_RUNS, Combination, Entries, StudyRun, combinations

_THE_SAME_MEASUREMENT = frozenset(("name", "account", "partition", "time", "sbatch", "env_file", "seed"))
"""Options of the command line that make no other run of it, or only on hardware that the result names itself."""
_NAMED_BY_VALUE = ("cluster", "method", "model", "task")
_LONGEST_PART = 40


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A run on the way."""

    layer: Layer
    """What it has otherwise than the top of the file."""
    about: About
    matrix: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The axes of which it is a combination."""


def runs_of(study: Study, name: str, base: Layer, sources: Mapping[str, str], flags: Flags) -> list[RunRequest]:
    """All runs of a study called `name`, in order; `base` are the options at the top of its file.

    Raises:
        RequestError: there are none or too many, two are the same or have the same name, or one has no small version.
    """
    made = list(_made(study, flags))
    if not made:
        raise RequestError(f"{study.where}: exclude leaves no run of the matrix.")
    pairs = [pair for one in made for pair in _of_one(study, name, base, sources, flags, one)]
    if len(pairs) > MOST_RUNS:
        raise RequestError(f"{study.where}: it has more than {MOST_RUNS} runs. Make it several files.")
    own = [*study.axes, *(key for one in made for key in axis_values(one.layer))]
    return _told_apart(pairs, study.where, list(dict.fromkeys((*own, *SWEPT))))


def _made(study: Study, flags: Flags) -> Iterator[_Made]:
    axes = {name: flags.axis(name, values) for name, values in study.axes.items() if not flags.replaces(name)}
    found = combinations(axes, study.excluded, study.where)
    adding = Entries([(entry.matches, entry) for entry in study.included if entry.matches])
    used: set[str] = set()
    for combination in found:
        entries = adding.of(combination)
        used.update(entry.where for entry in entries)
        yield _of_combination(combination, entries, study)
    for entry in study.included:
        if entry.where not in used and not any(
            map(flags.changes, entry.matches)
        ):  # what it names was excluded, or never was in the matrix
            yield _Made(layer=entry.layer, about=entry.about.over(study.about))
    for entry in study.runs:
        yield _Made(layer=entry.layer, about=entry.about.over(study.about))
    if study.is_plain:
        yield _Made(layer={}, about=study.about)


def _of_combination(combination: Combination, entries: Sequence[Entry], study: Study) -> _Made:
    layer: Layer = {}
    for axis, value in combination.items():
        layer = laid(layer, of_file(layer_of(axis, value), f"{study.where}: matrix"))
    about, said = study.about, dict(combination)
    for entry in entries:
        own = axis_values(entry.layer)
        twice = next((name for name in said if own.get(name, said[name]) != said[name] or _is_rival(name, own)), None)
        if twice is not None:
            raise RequestError(
                f"{entry.where}: {twice} is said once more of a combination that has {shown(said[twice])}. "
                "Entries of include add to one run; put further runs into runs."
            )
        layer, about, said = laid(layer, entry.layer), entry.about.over(about), {**said, **own}
    return _Made(layer=layer, about=about, matrix=study.axes)


def _is_rival(axis: str, entry: Combination) -> bool:
    """Whether an entry says in other words what the axis says."""
    return is_one_of(axis.removeprefix("set."), rivals_of(name.removeprefix("set.") for name in entry))


def _of_one(
    study: Study, name: str, base: Layer, sources: Mapping[str, str], flags: Flags, made: _Made
) -> Iterator[tuple[RunRequest, Layer]]:
    """The run, or one for each of the clusters and methods that the top of the file or the flags name.

    Beside each its options at full size, by which it is called.
    """
    about, small = made.about, {}
    if flags.smoke:
        if about.smoke is None:
            raise RequestError(
                f"{study.where}: --smoke: {about.name or _in_words(made.layer)} has no smoke values. "
                "Give smoke: {steps: N} at the top, for all runs, or with the run."
            )
        small = about.smoke
    asked = laid(base, made.layer)
    file = study.where.rpartition("/")[2]
    values = flags.over(without_taken_back(laid(asked, small)))
    told = {**sources, **dict.fromkeys(made.layer, file), **dict.fromkeys(small, f"{file}: smoke"), **flags.sources}
    full = flags.over(asked)
    for cluster in swept(values, "cluster"):
        for method in swept(values, "method"):
            own = {"cluster": cluster, "method": method}
            run = RunRequest(
                values={**values, **own},
                sources=told,
                place=StudyRun(
                    study=name,
                    name=about.name or "",
                    is_named=about.name is not None,
                    expect=about.smoke_expect if flags.smoke else about.expect,
                    reference=about.reference or {},
                    smoke=flags.smoke,
                    changed=_changed({**values, **own}, asked, flags, made),
                ),
            )
            yield run, {**full, **({} if "method" in small or "cluster" in small else own)}


def _changed(values: Layer, asked: Layer, flags: Flags, made: _Made) -> tuple[str, ...]:
    """The options of which flags made something else than the file says."""
    given = [name for name in flags.layer if name not in _THE_SAME_MEASUREMENT]
    now = axis_values({name: values[name] for name in given})
    of_file = axis_values({name: asked[name] for name in given if name in asked and name not in SWEPT})
    of_file = {name: (value,) for name, value in of_file.items()}
    of_file |= {name: tuple(names_in(asked[name])) for name in SWEPT if name in asked}
    return tuple(name for name, value in now.items() if value not in made.matrix.get(name, of_file.get(name, ())))


def _in_words(layer: Layer) -> str:
    return f"the run with {', '.join(f'{n} {shown(v)}' for n, v in axis_values(layer).items())}" if layer else "the run"


def _told_apart(pairs: Sequence[tuple[RunRequest, Layer]], where: str, own: Sequence[str]) -> list[RunRequest]:
    """The runs with their names and what each has otherwise than others, of the fields `own` in that order."""
    runs, held = [run for run, _ in pairs], [axis_values(full) for _, full in pairs]
    keys = [key for key in own if len({one.get(key) for one in held}) > 1]
    differs = [{key: shown(one[key]) for key in keys if key in one} for one in held]
    names = _names(runs, differs, where)
    return [
        replace(run, place=replace(run.place, name=name, differs=_as_run(run, full, own_values)))
        for run, name, full, own_values in zip(runs, names, held, differs, strict=True)
        if run.place is not None
    ]


def _as_run(run: RunRequest, full: Combination, differs: Mapping[str, str]) -> dict[str, str]:
    """What of it the run has in common with its full size, by which it is called: a small one takes some back."""
    small = axis_values(run.values)
    return {key: value for key, value in differs.items() if small.get(key) == full[key]}


def _names(runs: Sequence[RunRequest], differs: Sequence[Mapping[str, str]], where: str) -> list[str]:
    """A name for each run: its own, or what sets it apart."""
    own = [run.place.name if run.place else "" for run in runs]
    given = Counter(filter(None, own))
    names = [
        _own_name(name, values, several=given[name] > 1) if name else _derived(run, values)
        for run, name, values in zip(runs, own, differs, strict=True)
    ]
    counts = Counter(names)
    twice = next((name for name, mine in zip(names, own, strict=True) if mine and counts[name] > 1), None)
    if twice is not None:
        raise RequestError(f"{where}: {counts[twice]} runs are called {twice}. Give each a name of its own.")
    return _numbered(names, counts)


def _own_name(name: str, values: Mapping[str, str], *, several: bool) -> str:
    """The run's own name; with cluster and method where these make several of one entry."""
    return ",".join((name, *(values[key] for key in SWEPT if key in values))) if several else name


def _derived(run: RunRequest, values: Mapping[str, str]) -> str:
    parts = [_part(key, value) for key, value in values.items()]
    return ",".join(parts)[: LONGEST_NAME - 10] or run.method


def _part(key: str, value: str) -> str:
    if key in _NAMED_BY_VALUE:
        return (Path(value).name if key == "model" else value)[:_LONGEST_PART]
    return f"{key.rpartition('.')[2]}={value[:_LONGEST_PART]}"


def _numbered(names: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """The names, those that come several times with their number behind."""
    seen: Counter[str] = Counter()
    taken, found = set(names), []
    for name in names:
        if counts[name] > 1:
            seen[name] += 1
            while f"{name}#{seen[name]}" in taken:
                seen[name] += 1
            name = f"{name}#{seen[name]}"
        found.append(name)
    return found
