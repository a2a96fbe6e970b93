"""What of a plan makes two runs the same measurement, by name: all but what cannot change one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = frozenset(("job_name", "name", "profile", "run_id"))
_WHEN_AND_FOR_WHOM = frozenset(("time_s", "account"))
"""A limit that was not met, and who pays: a run that met its limit has another outcome, and no row with the others."""
_SBATCH = frozenset(
    """account admin-comment begin comment deadline dependency hold job-name kill-on-invalid-dep mail-type mail-user mcs-label
    nice no-requeue priority quiet requeue time time-min verbose wckey""".split()
)
"""Options of sbatch that say when a job starts, in which turn, who hears of it and who pays. One that may change on which
nodes it runs, what else runs there or what it may use is not among them, nor one that nobody here knows."""
_MAY_BE_EMPTY = frozenset(("sbatch", "env", "columns", "fp8"))
"""Lists of settings, of which none given is none of any name, and what plans of before did not say."""


def settings_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """All of a plan that repeats have in common, as `path -> value`.

    >>> settings_of({"steps": 9, "seed": 1, "sbatch": {"begin": "now+1hour", "exclusive": ""}})
    {'steps': 9, 'sbatch.exclusive': ''}
    """
    found = flat(plan).items()
    return {path: value for path, value in found if not (is_a_repeats(path) or _says_nothing(path, value))}


def is_a_repeats(path: str) -> bool:
    """Whether repeats of a run may differ in it: its seeds, its name, when it ran and for whom."""
    group, _, name = path.rpartition(".")
    return name == "seed" or path in _NAMES | _WHEN_AND_FOR_WHOM or (group == "sbatch" and name in _SBATCH)


def _says_nothing(path: str, value: object) -> bool:
    return value is None or (path in _MAY_BE_EMPTY and not value)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as `path -> value`."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        path = f"{prefix}{name}"
        if isinstance(item, Mapping) and item:
            found |= flat(item, f"{path}.")
        else:
            found[path] = item
    return found
