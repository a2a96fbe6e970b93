"""Whether a program shows by its work that it ran in spite of what a shell said before it of a module or an environment."""

from __future__ import annotations

import re
from functools import lru_cache

_COUNTED = re.compile(
    rb"^(?P<before>[A-Za-z][^\n\d|]{0,80}?)(?P<number>\d{1,9})(?P<behind>[^\n|]{0,120})$", re.MULTILINE
)
"""A line that counts; those of tables, as nvidia-smi's, do not."""
_NO_WORK = re.compile(rb"(?i)error|exception|fail|exit|kill|warn|abort|signal|srun|slurm|rank")
"""What stands in lines that ranks or nodes say one after the other."""
_GIVEN_OUT = re.compile(rb"^Launcher: Task \d{1,9} running job \d{1,9} on ", re.MULTILINE)
"""A launcher of many small programs begins one."""
_TIMES = 10
"""So many lines that count on by one show a program at work."""
_LOOKED_AT = 1 << 18
"""Bytes that are searched for them."""
_DIGITS = re.compile(rb"\d+(?:\.\d+)?")
_OF_THE_NETWORK = re.compile(
    rb"^(?:\[rank\d{1,5}\]: ?|\d{1,5}: )?(?:requests\.exceptions|urllib3\.exceptions|http\.client|httpx|httpcore|aiohttp\.client_exceptions|botocore\.exceptions)"
    rb"\.[A-Z]\w{2,60}: ",
    re.MULTILINE,
)
"""An exception by which a connection failed: no module and no environment brings it about, and its packages were found."""
_MISSES = re.compile(
    rb"ModuleNotFoundError|ImportError|cannot open shared object|execve\(\): "
    rb"|(?<!module: )(?<!conda: )(?<!ml: )command not found|: \d+: (?!module:|conda:|ml:)\S{1,80}: not found"
)
"""What may follow from a module or an environment that did not load."""


def is_outlived_by_work(text: bytes, position: int) -> bool:
    """Whether behind `position` the program works, and misses nothing that a module or an environment brings.

    >>> is_outlived_by_work(b"conda: not found\\n" + b"".join(b"part %d done\\n" % n for n in range(20)), 10)
    True
    """
    missed, begun = _places(text)
    end = text.find(b"\n", position)
    return end >= 0 and missed < end < begun


@lru_cache(maxsize=1)
def _places(text: bytes) -> tuple[int, int]:
    """Where something is missed last, and where work begins last; asked for each of a text's signs, and looked for once."""
    missed = max((one.start() for one in _MISSES.finditer(text)), default=-1)
    shown = (one.start() for pattern in (_OF_THE_NETWORK, _GIVEN_OUT) for one in pattern.finditer(text))
    return missed, max(max(shown, default=-1), _last_count(text))


def begins_with_work(text: bytes) -> bool:
    """Whether lines at the beginning of `text` that are the same but for their numbers count on by one, and nothing is missed there.

    >>> begins_with_work(b"".join(b"srun: error: n%d: task %d: Exited with exit code 1\\n" % (n, n) for n in range(20)))
    False
    """
    first = text[:_LOOKED_AT]
    return _MISSES.search(first) is None and _last_count(first) >= 0


def _last_count(text: bytes) -> int:
    """Where the last lines begin that count on; -1 where none do."""
    counts: dict[bytes, tuple[int, int, int]] = {}
    last = -1
    for line in _COUNTED.finditer(text):
        shape = line["before"] + b"#" + _DIGITS.sub(b"#", line["behind"])
        if b" " not in shape.strip() or _NO_WORK.search(shape):
            continue
        number = int(line["number"])
        before, times, begin = counts.get(shape, (-2, 0, 0))
        times, begin = (times + 1, begin) if number == before + 1 else (1, line.start())
        if times >= _TIMES:
            last = max(last, begin)
        counts[shape] = (number, times, begin)
    return last
