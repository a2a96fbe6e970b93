"""Steps of one job, one after the other: `srun first.py; srun second.py`. What the second one says of itself ended none before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpc_llm.causes.found import Found

FAILED = re.compile(r"\bsrun: error: \S{1,100}: tasks? [\d,-]{1,200}: Exited with exit code (?P<code>[1-9]\d{0,2})\b")
"""What srun says of a step that failed."""
_ENDED_BY_OTHERS = ("129", "130", "143")
"""Exit codes of the signals by which others end a step."""

_OF_ITS_OWN = frozenset(
    ("python_exception", "package_missing", "data_missing", "data_error", "model_missing", "config_error")
)
"""What is of a program and of what it was given, and not of the node or the GPU, which a step before it may have felt first."""


def without_later_steps(found: Sequence[Found]) -> list[Found]:
    """Leave out what another script raised behind the end of a step of which it is known why it failed.

    That it is another script its traceback shows: ranks of the step that has failed may still write.
    """
    ended: dict[str, int] = {}
    for one in found:
        said = FAILED.search(one.text)
        if said and said["code"] not in _ENDED_BY_OTHERS and _programs(found, one.file, one.position):
            ended[one.file] = min(one.position, ended.get(one.file, one.position))
    return [one for one in found if one.file not in ended or not _is_of_another(one, found, ended[one.file])]


def _is_of_another(one: Found, found: Sequence[Found], end: int) -> bool:
    is_later = one.position > end and one.is_root and one.cause.id in _OF_ITS_OWN
    is_later = is_later and one.is_raised and one.program is not None
    return is_later and one.program not in _programs(found, one.file, end)


def _programs(found: Sequence[Found], file: str, end: int) -> set[str]:
    """The scripts whose exceptions stand before `end`."""
    return {
        one.program
        for one in found
        if one.file == file and 0 <= one.position < end and one.is_root and one.ends_process and one.program is not None
    }
