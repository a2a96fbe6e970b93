"""How much a value of sbatch's asks for: nodes that a list names, bytes of an amount."""

from __future__ import annotations

import math
import re

from hpc_llm.text.late_pattern import late_pattern
from hpc_llm.text.numbers import whole_number

_HOSTS = late_pattern(r"(?:[A-Za-z0-9._-]|\[[0-9,-]+\])+")


def named_nodes(text: str) -> int | None:
    """How many nodes a value of --nodelist names; None where that is not certain.

    >>> named_nodes("a1,a2,a1"), named_nodes("gn[01-04,7],login"), named_nodes("a[1-2]b[1-3]"), named_nodes("./file")
    (2, 6, 6, None)
    """
    names = set(re.split(r",(?![^\[]*\])", text))
    if not all(_HOSTS.fullmatch(name) for name in names) or "/" in text:
        return None
    return sum(math.prod(_in_brackets(part) for part in re.findall(r"\[([0-9,-]+)\]", name)) for name in names)


def _in_brackets(text: str) -> int:
    """How many numbers a list of ranges such as `1-4,7` has."""
    found = 0
    for part in text.split(","):
        first, last = (whole_number(number) for number in part.partition("-")[::2])
        found += 1 if first is None or last is None else abs(last - first) + 1
    return found


_SIZE = late_pattern(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"K": 2**10, "": 2**20, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_bytes(text: str) -> int | None:
    """Bytes of an amount as sbatch reads it, None where it is none.

    >>> memory_bytes("1500"), memory_bytes("2gb"), memory_bytes("5.5G")
    (1572864000, 2147483648, None)
    """
    match = _SIZE.fullmatch(text.strip())
    number = whole_number(match[1]) if match else None
    return None if match is None or number is None else number * _UNITS[match[2].upper()]
