"""Some runs of a study alone: those of a cluster, of a method, or of a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hpc_llm.api.layers import RunRequest
from hpc_llm.errors import RequestError, unknown_name


def _value(key: str) -> Callable[[RunRequest], str]:
    return lambda run: str(run.values.get(key) or "")


_KEYS: Mapping[str, Callable[[RunRequest], str]] = {
    "name": lambda run: run.place.name if run.place else "",
    **{key: _value(key) for key in ("cluster", "method", "model", "task")},
}


def only(runs: Sequence[RunRequest], asked: Any, spelled: str) -> list[RunRequest]:
    """The runs that have what each of the `KEY=VALUE,...` in `asked` says; `*` in a value stands for anything.

    Raises:
        RequestError: there is no study, no such key, or no such run.
    """
    if not asked:
        return list(runs)
    if not runs:
        raise RequestError(f"{spelled}only takes runs of a study, and the request is none. Leave it out.")
    tests = [_test(runs, str(said), spelled) for said in ([asked] if isinstance(asked, str) else asked)]
    found = [run for run in runs if all(is_one(run) for is_one in tests)]
    if not found:
        raise RequestError(
            f"{spelled}only: no run of the study has all of that at once. `render` without it lists them."
        )
    return found


def _test(runs: Sequence[RunRequest], said: str, spelled: str) -> Callable[[RunRequest], bool]:
    """Whether a run has what is said; refuses what no run has."""
    key, equals, text = said.partition("=")
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    if not equals or not patterns:
        raise RequestError(f"{spelled}only {said}: write KEY=VALUE, as in {spelled}only cluster=delta.")
    if key.strip() not in _KEYS:
        raise RequestError(f"{spelled}only: " + unknown_name("key", key.strip(), _KEYS))
    value = _KEYS[key.strip()]
    there = list({value(run): None for run in runs})
    patterns = _together(patterns, there)
    for pattern in patterns:
        if not any(_fits(one, pattern) for one in there):
            raise RequestError(f"{spelled}only: " + unknown_name(key.strip(), pattern, [one for one in there if one]))
    return lambda run: any(_fits(value(run), pattern) for pattern in patterns)


def _together(parts: Sequence[str], there: Sequence[str]) -> list[str]:
    """Patterns that were parted at commas, of which the names of a matrix hold some: the longest that fits is one.

    >>> _together(["ddp", "seed=1", "z3", "seed=*"], ["ddp,seed=1", "z3,seed=1"])
    ['ddp,seed=1', 'z3,seed=*']
    """
    found = []
    begin = 0
    while begin < len(parts):
        ends = range(len(parts), begin, -1)
        fitting = (end for end in ends if any(_fits(one, ",".join(parts[begin:end])) for one in there))
        end = next(fitting, begin + 1)
        found.append(",".join(parts[begin:end]))
        begin = end
    return found


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
